#include "report/lists.hpp"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "layout/enum_names.hpp"
#include "layout/knobs.hpp"
#include "layout/mutations.hpp"
#include "moecast/cluster.hpp"
#include "moecast/model_io.hpp"
#include "moecast/stack.hpp"
#include "report/table.hpp"

namespace moecast {
namespace {

void add_problems(Listing& listing, const Diagnostics& problems) {
  listing.problems.insert(listing.problems.end(), problems.begin(), problems.end());
}

Listing models() {
  Listing list{.columns = {{"model", "name"},
                           {"architecture", "architecture"},
                           {"parameters", "total", true},
                           {"active", "active", true},
                           {"layers", "layers", true},
                           {"experts", "experts", true},
                           {"top-k", "topk", true}}};
  for (const std::string& name : shipped_models()) {
    const Result<ModelSpec> model = load_model(name, Json::object(), "");
    if (!model) {
      add_problems(list, model.problems());
      continue;
    }
    const ModelSpec& m = model.value();
    const ParamCount params = count_params(m);
    list.rows.push_back({{"name", name},
                         {"architecture", m.architecture},
                         {"total", whole_number(params.total)},
                         {"active", whole_number(params.active)},
                         {"layers", m.layers.size()},
                         {"experts", m.moe.num_moe_experts},
                         {"topk", m.moe.moe_router_topk}});
  }
  return list;
}

Listing systems() {
  Listing list{.columns = {{"system", "name"},
                           {"GPU", "gpu"},
                           {"GPUs/node", "gpus_per_node", true},
                           {"GPUs/NVLink domain", "gpus_per_nvlink_domain", true},
                           {"HBM GiB", "hbm_capacity_gib", true},
                           {"BF16 TFLOPS", "bf16_tflops", true},
                           {"FP8 TFLOPS", "fp8_tflops", true},
                           {"NVLink GB/s", "nvlink_gb_per_s", true},
                           {"NIC GB/s", "nic_gb_per_s", true}}};
  for (const std::string& name : shipped_systems()) {
    const Result<System> system = load_system(name);
    if (!system) {
      add_problems(list, system.problems());
      continue;
    }
    const System& s = system.value();
    list.rows.push_back({{"name", name},
                         {"gpu", s.gpu.name},
                         {"gpus_per_node", s.gpus_per_node},
                         {"gpus_per_nvlink_domain", s.gpus_per_nvlink_domain},
                         {"hbm_capacity_gib", in_gib(s.gpu.hbm_capacity)},
                         {"bf16_tflops", in_tflops(s.gpu.bf16)},
                         {"fp8_tflops", in_tflops(s.gpu.fp8)},
                         {"fp4_tflops", in_tflops(s.gpu.fp4)},
                         {"nvlink_gb_per_s", in_gb_per_s(s.nvlink_per_direction)},
                         {"nic_gb_per_s", in_gb_per_s(s.nic_per_gpu)}});
  }
  return list;
}

Listing stacks() {
  Listing list{.columns = {{"stack", "name"},
                           {"also", "aliases"},
                           {"PyTorch", "pytorch"},
                           {"Transformer Engine", "transformer_engine"},
                           {"Megatron-Core", "megatron_core"},
                           {"Megatron-Bridge", "bridge"}}};
  for (const std::string& name : shipped_stacks()) {
    const Result<StackMatch> match = load_stack(name);
    if (!match) {
      add_problems(list, match.problems());
      continue;
    }
    const Stack& stack = match.value().stack;
    list.rows.push_back({{"name", name},
                         {"aliases", stack.aliases},
                         {"pytorch", stack.software.pytorch},
                         {"transformer_engine", stack.software.transformer_engine},
                         {"megatron_core", stack.software.megatron_core},
                         {"bridge", stack.software.bridge},
                         {"features", stack.software.features}});
  }
  return list;
}

Listing rules() {
  Listing list{
      .columns = {{"rule", "id"}, {"severity", "severity"}, {"must hold", "condition", false, 92}}};
  for (const Rule& rule : rule_table()) {
    list.rows.push_back({{"id", rule.id},
                         {"severity", to_string(rule.severity)},
                         {"phase", to_string(rule.phase)},
                         {"knobs", knobs_of(rule)},
                         {"keys", keys_of(rule)},
                         {"condition", rule.condition},
                         {"fix", rule.fix},
                         {"enforced_by", to_string(rule.enforcer)},
                         {"applies", applies_text(rule)},
                         {"section", rule.document},
                         {"source", rule.source}});
  }
  for (const Mutation& m : mutation_table()) {
    list.rows.push_back({{"id", m.id},
                         {"severity", to_string(Severity::mutation)},
                         {"phase", to_string(Phase::config)},
                         {"knobs", words_of(m.reads)},
                         {"keys", words_of(m.writes)},
                         {"condition", m.what},
                         {"fix", ""},
                         {"enforced_by", to_string(m.enforcer)},
                         {"applies", ""},
                         {"section", ""},
                         {"source", m.source}});
  }
  return list;
}

Listing knobs() {
  Listing list{
      .columns = {
          {"key", "key"}, {"short", "short"}, {"default", "default"}, {"values", "domain"}}};
  for (const Knob& knob : knob_table()) {
    list.rows.push_back({{"key", knob.key},
                         {"short", knob.short_name},
                         {"domain", knob.domain},
                         {"default", knob.default_text},
                         {"megatron_flag", knob.megatron_flag},
                         {"bridge_key", knob.bridge_key},
                         {"help", knob.help}});
  }
  return list;
}

Listing dispatchers() {
  static const std::map<Dispatcher, std::pair<const char*, const char*>> kWords{
      {Dispatcher::alltoall,
       {"--moe-token-dispatcher-type alltoall", "NCCL all-to-all of the routed rows"}},
      {Dispatcher::allgather,
       {"--moe-token-dispatcher-type allgather",
        "gathers every token, reduce-scatters the results"}},
      {Dispatcher::deepep,
       {"--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
        "NVLink inside a node, RDMA between nodes"}},
      {Dispatcher::hybridep,
       {"--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
        "TMA in an NVLink domain, RDMA between domains"}}};
  Listing list{.columns = {{"dispatcher", "name"},
                           {"Megatron-LM", "megatron", false, 92},
                           {"how", "description"}}};
  for (const auto& name : kEnumNames<Dispatcher>) {
    const auto& [flags, words] = kWords.at(name.value);
    list.rows.push_back({{"name", name.text}, {"megatron", flags}, {"description", words}});
  }
  return list;
}

/// The table shows what fits a screen; the JSON and the pages hold all.
std::string shortened(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

std::string cell(const ListColumn& column, const Json& row) {
  const Json& value = row.at(column.key);
  if (value.is_string()) return shortened(value.get<std::string>(), column.width);
  if (value.is_array()) {
    std::vector<std::string> words;
    for (const Json& item : value) words.push_back(item.get<std::string>());
    return shortened(fmt::to_string(fmt::join(words, ", ")), column.width);
  }
  const double number = value.get<double>();
  return number >= 1e6 ? short_count(number) : fmt::format("{:.6g}", number);
}

Table table_of(const Json& rows, const std::vector<ListColumn>& columns) {
  std::vector<Table::Column> titles;
  for (const ListColumn& c : columns)
    titles.push_back({c.title, c.number ? Table::Align::right : Table::Align::left});
  Table table(std::move(titles));
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const ListColumn& c : columns) cells.push_back(cell(c, row));
    table.add(std::move(cells));
  }
  return table;
}

const std::vector<std::pair<std::string, Listing (*)()>>& topics() {
  static const std::vector<std::pair<std::string, Listing (*)()>> all{
      {"models", models},           {"systems", systems}, {"rules", rules},
      {"dispatchers", dispatchers}, {"knobs", knobs},     {"stacks", stacks}};
  return all;
}

}  // namespace

std::vector<std::string> list_topics() {
  std::vector<std::string> names;
  for (const auto& topic : topics()) names.push_back(topic.first);
  return names;
}

Listing make_listing(const std::string& topic) {
  for (const auto& [name, make] : topics()) {
    if (name != topic) continue;
    Listing listing = make();
    listing.topic = topic;
    return listing;
  }
  throw std::logic_error("no such topic: " + topic);
}

Json listing_json(const Listing& listing) {
  return {{"schema", "moecast/list@1"}, {listing.topic, listing.rows}};
}

std::string listing_text(const Listing& listing, const Style& style) {
  return table_of(listing.rows, listing.columns).to_text(style, 0);
}

std::string topic_markdown(const std::string& topic) {
  if (topic == "rules") return rules_markdown();
  return topic == "knobs" ? knobs_markdown() : "";
}

}  // namespace moecast
