#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "layout/export_text.hpp"
#include "layout/megatron_import.hpp"
#include "layout/run_config.hpp"

namespace moecast {
namespace {

using nlohmann::json;

const PrecisionNames& names_of(Precision precision) {
  const auto& table = precision_names();
  return *std::find_if(table.begin(), table.end(),
                       [&](const PrecisionNames& n) { return n.precision == precision; });
}

/// The fields of mixed_precision that say a precision: those of the formats that are on, and that
/// the others are off.
bool is_stated_precision(const MegatronConfig& c, std::string_view name) {
  if (name == "fp16") return false;
  if (name == "fp8_recipe" || name == "fp8_param_gather") return static_cast<bool>(c.fp8_format);
  if (name == "fp4_recipe" || name == "fp4_param_gather") return static_cast<bool>(c.fp4_format);
  if (name == "reuse_grad_buf_for_mxfp8_param_ag") return c.fp8_recipe == "mxfp8"_w && c.fp8_format;
  return name == "bf16" || name == "fp8_format" || name == "fp4_format" ||
         name == "accumulate_allreduce_grads_in_fp32" ||
         (name == "first_last_layers_bf16" && c.first_last_layers_bf16);
}

/// A recipe brings its own values, so that every key of the run is stated, default or not: but not
/// what a dense model has no use for.
bool is_stated(const ExportSource& s, const MegatronField& field) {
  if (field.bridge.empty()) return false;
  if (field.run_key == "model") return get(s.config, field) != get(s.unchanged, field);
  const bool of_experts = field.run_key.starts_with("moe.");
  if (of_experts && s.model.moe.num_moe_experts < 1) return false;
  if (field.name == "main_grads_dtype") return false;
  if (field.bridge.starts_with("mixed_precision."))
    return is_stated_precision(s.config, field.name);
  if (field.name == "data_parallel_sharding_strategy") return s.config.use_megatron_fsdp;
  if (field.name == "moe_flex_dispatcher_backend")
    return s.config.moe_token_dispatcher_type == "flex"_w;
  if (field.name == "expert_tensor_parallel_size") return s.model.moe.num_moe_experts > 0;
  const bool differs = get(s.config, field) != get(s.base, field);
  const bool software =
      field.run_key.starts_with("software.") || field.run_key.starts_with("cluster.");
  return field.run_key.empty() || software ? differs : true;
}

/// path=value for every field that `keep` takes.
std::vector<std::string> overrides(const ExportSource& s, auto keep) {
  const bool shape_of_run = has_gpt_options(s.model);
  std::vector<std::string> lines;
  for (const MegatronField& field : megatron_fields()) {
    if (!is_stated(s, field) || !keep(field)) continue;
    if (!shape_of_run && field.run_key == "model") continue;
    static const std::array ours{"max_position_embeddings", "attention_dropout", "hidden_dropout",
                                 "moe_grouped_gemm"};
    if (std::find(ours.begin(), ours.end(), field.name) != ours.end()) continue;
    lines.push_back(field.bridge + "=" + hydra_value(get(s.config, field)));
  }
  lines.push_back(fmt::format("dataset.seq_length={}", s.run.seq_length));
  return lines;
}

/// Recipe names of the performance harness where they are not the model's own. Ref:
/// scripts/performance of Megatron-Bridge.
std::pair<std::string, std::string> recipe_of(const std::string& model) {
  struct Family {
    std::string_view start, family;
  };
  static constexpr std::array kFamilies = std::to_array<Family>({{"deepseek", "deepseek"},
                                                                 {"qwen3-vl", "qwen_vl"},
                                                                 {"qwen", "qwen"},
                                                                 {"gpt-oss", "gpt_oss"},
                                                                 {"llama", "llama"},
                                                                 {"nemotron", "nemotronh"},
                                                                 {"kimi", "kimi"}});
  std::string recipe;
  for (const char c : model)
    if (c != '.') recipe += c == '-' ? '_' : c;
  for (const Family& f : kFamilies)
    if (model.starts_with(f.start)) return {std::string(f.family), recipe};
  return {recipe.substr(0, recipe.find('_')), recipe};
}

/// Fields that the harness has an option for; the other keys go as overrides. --moe_a2a_overlap is
/// left alone, as it would switch delayed weight gradients on too.
std::vector<std::string> harness_options(const ExportSource& s) {
  const MegatronConfig& c = s.config;
  const Layout& l = s.run.layout;
  const auto [family, recipe] = recipe_of(s.run.model);
  const PrecisionNames& precision = names_of(l.precision);
  std::vector<std::string> options{
      fmt::format("-m {} -mr {}", family, recipe),
      fmt::format("-g {} -ng {} -gn {}", c.gpu.empty() ? "h100" : c.gpu, s.run.gpus,
                  c.gpu.starts_with("gb") ? 4 : 8),
      fmt::format("-c {}", precision.harness.empty() ? "bf16" : precision.harness),
      fmt::format("-mb {} -gb {} -sl {}", l.micro_batch_size, s.run.global_batch_size,
                  s.run.seq_length),
      fmt::format("-tp {} -pp {} -cp {} -vp {}", l.tp, l.pp, l.cp,
                  c.num_virtual_stages_per_pipeline_rank
                      ? std::to_string(*c.num_virtual_stages_per_pipeline_rank)
                      : "None")};
  if (s.model.moe.num_moe_experts > 0) {
    options.push_back(fmt::format("-ep {} -et {}", l.ep, l.etp));
    const bool flex = c.moe_token_dispatcher_type == "flex"_w;
    options.push_back("--moe_flex_dispatcher_backend " +
                      std::string(flex ? text_of(c.moe_flex_dispatcher_backend) : "None"));
  }
  if (!c.pipeline_model_parallel_layout.empty()) {
    options.push_back("--pipeline_model_parallel_layout " +
                      shell_quoted(c.pipeline_model_parallel_layout));
  }
  std::vector<std::string> scope = texts_of(c.cuda_graph_modules);
  const bool whole = c.cuda_graph_impl == "full_iteration"_w;
  if (whole) scope = {"full_iteration"};
  options.push_back(
      fmt::format("--cuda_graph_impl {}", whole ? "local" : text_of(c.cuda_graph_impl)));
  if (!scope.empty())
    options.push_back(fmt::format("--cuda_graph_scope {}", fmt::join(scope, ",")));
  options.push_back(fmt::format("--use_megatron_fsdp {}", c.use_megatron_fsdp));
  for (const auto& [name, value] : c.env)
    options.push_back("-E " + shell_quoted(name + "=" + value));
  return options;
}

bool has_option(const ExportSource& s, const MegatronField& field) {
  static const std::vector<std::string_view> by_override{
      "-rl", "--recompute_modules", "-ol", "--moe_a2a_overlap", "--nccl_ub", "--optimizer_type"};
  if (field.harness.empty()) {
    return field.name == "moe_token_dispatcher_type" &&
           s.config.moe_token_dispatcher_type != "allgather"_w;
  }
  return field.run_key != "model" &&
         std::find(by_override.begin(), by_override.end(), field.harness) == by_override.end();
}

}  // namespace

std::string hydra_value(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const json& item : value) text += (text.empty() ? "" : ",") + hydra_value(item);
  return "[" + text + "]";
}

std::string bridge_text(const ExportSource& s) {
  std::string text;
  for (const auto& [name, value] : s.config.env)
    text += fmt::format("export {}={}\n", name, shell_quoted(value));
  text += fmt::format("# mixed_precision below is {}\n", names_of(s.run.layout.precision).bridge);
  for (const std::string& line : overrides(s, [](const MegatronField&) { return true; }))
    text += shell_quoted(line) + "\n";
  return text;
}

std::string harness_text(const ExportSource& s) {
  std::string text = "python scripts/performance/setup_experiment.py";
  for (const std::string& option : harness_options(s)) text += " \\\n  " + option;
  const auto keep = [&](const MegatronField& field) { return !has_option(s, field); };
  for (const std::string& line : overrides(s, keep)) text += " \\\n  " + shell_quoted(line);
  return text + " \\\n  \"$@\"\n";
}

}  // namespace moecast
