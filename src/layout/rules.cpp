#include "layout/rules.hpp"

#include <charconv>
#include <iterator>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include "layout/megatron_config.hpp"
#include "layout/mutations.hpp"
#include "layout/rules_detail.hpp"
#include "moecast/layout.hpp"

namespace moecast {
namespace rules {

std::vector<Rule> join(std::initializer_list<Section> sections) {
  std::vector<Rule> table;
  for (Section section : sections) {
    std::vector<Rule> rows = section();
    std::move(rows.begin(), rows.end(), std::back_inserter(table));
  }
  return table;
}

}  // namespace rules

namespace {

using rules::In;

/// The error rules of a launcher, in table order.
struct HotRule {
  bool (*broken)(const RuleInput&);
  int index;
};
std::vector<HotRule> error_rules(Flavour flavour) {
  std::vector<HotRule> hot;
  const auto& table = rule_table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].severity == Severity::error && table[i].holds_for(flavour))
      hot.push_back({table[i].broken, static_cast<int>(i)});
  }
  return hot;
}

/// "expert_model_parallel_size 1, overlap_moe_expert_parallel_comm true"
std::string values_of(const Rule& rule, In in) {
  std::string text;
  for (const std::string& name : knobs_of(rule)) {
    const MegatronField* field = find_megatron_field(name);
    if (field == nullptr) continue;
    const auto value = get(in.c, *field);
    if (value.is_null() || value == false) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value.dump());
  }
  return text.empty() ? "nothing set" : text;
}

Finding finding_of(const Rule& rule, In in) {
  std::string message = rule.message != nullptr
                            ? rule.message(in)
                            : fmt::format("{} (here: {})", rule.condition, values_of(rule, in));
  return {std::string(rule.id),  rule.severity,      keys_of(rule), std::move(message),
          std::string(rule.fix), applies_text(rule), rule.phase};
}

/// How many times more shards than ranks a weight is cut into.
long shards(const std::optional<int>& stated, int size) {
  return stated && size > 0 && *stated > 0 ? std::max(1, *stated / size) : 1;
}

void derive(RuleInput& in) {
  using rules::product;
  const MegatronConfig& c = in.c;
  const int tp = c.tensor_model_parallel_size, pp = c.pipeline_model_parallel_size;
  in.weight_shards = shards(c.tensor_parallel_num_weight_shards, tp);
  in.attention = product({tp, pp, c.context_parallel_size, in.weight_shards});
  in.expert = product({rules::etp(in), c.expert_model_parallel_size, pp,
                       shards(c.expert_tensor_parallel_num_weight_shards, rules::etp(in))});
  in.dp = in.attention > 0 && c.world_size % in.attention == 0 ? c.world_size / in.attention : 0;
  in.edp = in.expert > 0 && c.world_size % in.expert == 0 ? c.world_size / in.expert : 0;
  const long step = product({c.micro_batch_size, in.dp});
  const long batch = c.global_batch_size.value_or(0);
  const bool whole = step > 0 && (batch % step == 0 || c.decrease_batch_size_if_needed);
  in.microbatches = whole ? batch / step : 0;
  in.vpp = c.num_virtual_stages_per_pipeline_rank.value_or(1);
}

}  // namespace

std::string_view to_string(Severity severity) {
  constexpr std::string_view kNames[] = {"error", "warning", "mutation", "info"};
  return kNames[static_cast<int>(severity)];
}
std::string_view to_string(Phase phase) {
  constexpr std::string_view kNames[] = {"config", "init", "build", "first step", "runtime"};
  return kNames[static_cast<int>(phase)];
}
std::string_view to_string(Enforcer enforcer) {
  constexpr std::string_view kNames[] = {"megatron-core", "megatron-lm", "megatron-bridge",
                                         "moecast"};
  return kNames[static_cast<int>(enforcer)];
}

Rule Rule::by(Enforcer who) const {
  Rule r = *this;
  r.enforcer = who;
  return r;
}
Rule Rule::at(Phase when) const {
  Rule r = *this;
  r.phase = when;
  return r;
}
Rule Rule::says(std::string (*text)(const RuleInput&)) const {
  Rule r = *this;
  r.message = text;
  return r;
}
Rule Rule::since(std::string_view range) const {
  Rule r = *this;
  r.versions = range;
  return r;
}
Rule Rule::logs(std::string_view words) const {
  Rule r = *this;
  r.log = words;
  return r;
}
Rule Rule::section(std::string_view where) const {
  Rule r = *this;
  r.document = where;
  return r;
}

const std::vector<Rule>& rule_table() {
  using namespace rules;
  static const std::vector<Rule> table = join(
      {world_rules,     pipeline_rules,  layout_string_rules, model_rules,      attention_rules,
       router_rules,    overlap_rules,   delayed_wgrad_rules, dispatcher_rules, library_rules,
       expert_rules,    graph_rules,     graph_capture_rules, recompute_rules,  offload_rules,
       precision_rules, optimizer_rules, fsdp_rules,          version_rules,    advice_rules});
  return table;
}

const Rule* find_rule(std::string_view id) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const Rule*> map;
    for (const Rule& rule : rule_table()) map.emplace(rule.id, &rule);
    return map;
  }();
  const auto found = index.find(id);
  return found == index.end() ? nullptr : found->second;
}

std::vector<std::string> knobs_of(const Rule& rule) { return words_of(rule.reads); }

std::vector<std::string> words_of(std::string_view rest) {
  std::vector<std::string> names;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    std::string name(rest.substr(0, end));
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

std::vector<std::string> keys_of(const Rule& rule) {
  std::vector<std::string> keys;
  for (std::string& name : knobs_of(rule)) {
    const MegatronField* field = find_megatron_field(name);
    std::string key = name.starts_with("env.")                     ? "software.env"
                      : field == nullptr || field->run_key.empty() ? name
                                                                   : std::string(field->run_key);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(std::move(key));
  }
  return keys;
}

std::string applies_text(const Rule& rule) {
  const std::string_view who =
      rule.enforcer == Enforcer::core ? std::string_view() : to_string(rule.enforcer);
  if (rule.versions.empty()) return std::string(who);
  return who.empty() ? std::string(rule.versions) : fmt::format("{}; {}", who, rule.versions);
}

Checkable::Checkable(MegatronConfig config, Surroundings surroundings)
    : asked_(config),
      config_(std::move(config)),
      at_(std::move(surroundings)),
      input_{config_, asked_, at_} {
  ask(asked_);
}

void Checkable::ask(const MegatronKnobs& knobs) {
  if (&knobs != &asked_) asked_ = knobs;
  static_cast<MegatronKnobs&>(config_) = asked_;
  mutate(config_, at_);
  derive(input_);
}

std::vector<Finding> check_rules(const RuleInput& input) {
  std::vector<Finding> findings;
  const Rule& sizes = rule_table().front();
  if (sizes.broken(input)) return {finding_of(sizes, input)};  // the others divide by them
  for (const Rule& rule : rule_table()) {
    if (rule.holds_for(input.at.flavour) && rule.broken(input))
      findings.push_back(finding_of(rule, input));
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return findings;
}

int first_broken_rule(const RuleInput& input) {
  static const std::vector<HotRule> hot[] = {error_rules(Flavour::megatron_lm),
                                             error_rules(Flavour::bridge)};
  for (const HotRule& rule : hot[static_cast<int>(input.at.flavour)]) {
    if (rule.broken(input)) return rule.index;
  }
  return -1;
}

long minimum_gpus(const Layout& layout) {
  const long attention = static_cast<long>(layout.tp) * layout.cp;
  const long expert = static_cast<long>(layout.etp) * layout.ep;
  return layout.pp * std::lcm(attention, expert);
}

}  // namespace moecast
