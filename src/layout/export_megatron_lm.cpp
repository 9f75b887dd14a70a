#include <algorithm>

#include <fmt/format.h>

#include "layout/export_text.hpp"
#include "layout/megatron_model.hpp"
#include "layout/run_config.hpp"

namespace moecast {
namespace {

using nlohmann::json;

/// ([0]*3+[1]*58)
std::string layer_pattern_text(const std::vector<int>& freq) {
  if (freq.size() == 1) return std::to_string(freq[0]);
  std::string text;
  for (std::size_t i = 0; i < freq.size();) {
    std::size_t end = i;
    while (end < freq.size() && freq[end] == freq[i]) ++end;
    text += fmt::format("{}[{}]*{}", i > 0 ? "+" : "", freq[i], end - i);
    i = end;
  }
  return "(" + text + ")";
}

/// Stated whatever the default: Megatron-LM asks for the first, readers look for the others.
bool is_required(const MegatronField& field) {
  return field.name == "micro_batch_size" || field.name == "tensor_model_parallel_size" ||
         field.name == "pipeline_model_parallel_size";
}

/// "--flag words", or nothing where the default says it or no flag does.
std::string option_text(const ExportSource& s, const MegatronField& field) {
  const json value = get(s.config, field), usual = get(s.base, field);
  if (field.flag.empty() || value.is_null()) return "";
  if (value == usual && !is_required(field)) return "";
  if (field.name == "moe_layer_freq") {
    return fmt::format("{} {}", field.flag,
                       shell_quoted(layer_pattern_text(s.config.moe_layer_freq)));
  }
  if (!value.is_boolean()) return fmt::format("{} {}", field.flag, option_words(value));
  const bool negative = field.flag.starts_with("--no-") || field.flag.starts_with("--disable-");
  return value.get<bool>() != negative ? field.flag : "";
}

bool is_model_field(const MegatronField& field) {
  static const std::vector<std::string_view> more{"max_position_embeddings", "attention_dropout",
                                                  "hidden_dropout"};
  return field.run_key == "model" || std::find(more.begin(), more.end(), field.name) != more.end();
}

std::string array(const std::string& name, const std::vector<std::string>& options) {
  std::string text = name + "=(\n";
  for (const std::string& option : options) text += "  " + option + "\n";
  return text + ")\n";
}

std::vector<std::string> model_options(const ExportSource& s) {
  std::vector<std::string> options;
  for (const MegatronField& field : megatron_fields())
    if (is_model_field(field)) options.push_back(option_text(s, field));
  for (const auto& [flag, word] : more_model_options(s.model))
    options.push_back(word.empty() ? flag : flag + " " + shell_quoted(word));
  std::erase(options, "");
  return options;
}

std::vector<std::string> layout_options(const ExportSource& s, bool dry_run) {
  std::vector<std::string> options;
  for (const MegatronField& field : megatron_fields()) {
    const bool exchange =
        field.run_key == "moe.dispatcher" || field.run_key == "moe.dispatcher_num_sms";
    if (!is_model_field(field) && !(dry_run && exchange)) options.push_back(option_text(s, field));
  }
  if (dry_run && s.model.moe.num_moe_experts > 0)
    options.push_back("--moe-token-dispatcher-type alltoall");
  std::erase(options, "");
  return options;
}

int ranks_per_node(const ExportSource& s) {
  const int most = s.config.gpu.starts_with("gb") ? 4 : 8;
  int ranks = std::min(most, s.run.gpus);
  while (s.run.gpus % ranks != 0) --ranks;
  return ranks;
}

std::string launch_text(const ExportSource& s) {
  const int per_node = ranks_per_node(s);
  return fmt::format(
      "DISTRIBUTED_ARGS=(\n  --nnodes {}\n  --nproc-per-node {}\n"
      "  --node-rank \"${{NODE_RANK:-0}}\"\n  --master-addr \"${{MASTER_ADDR:-localhost}}\"\n"
      "  --master-port \"${{MASTER_PORT:-6000}}\"\n)\n\n"
      "torchrun \"${{DISTRIBUTED_ARGS[@]}}\" \"${{MEGATRON_PATH:-.}}/pretrain_gpt.py\" \\\n"
      "  \"${{MODEL_ARGS[@]}}\" \"${{LAYOUT_ARGS[@]}}\" \"${{TRAINING_ARGS[@]}}\"\n",
      s.run.gpus / per_node, per_node);
}

/// One process plays one rank of the whole job and nothing is sent.
std::string dry_run_text(const ExportSource& s) {
  const int stage = std::max(1, s.run.gpus / s.run.layout.pp);
  return fmt::format(
      "# One rank of {} on one GPU, without communication: the peak that it prints is the rank's.\n"
      "# RANK = p * {} is pipeline rank p (0 to {}). Megatron's guides call the option\n"
      "# --fake-init-process-group.\n"
      "WORLD_SIZE={} RANK=${{RANK:-0}} LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=6000 \\\n"
      "  python \"${{MEGATRON_PATH:-.}}/pretrain_gpt.py\" \\\n"
      "  \"${{MODEL_ARGS[@]}}\" \"${{LAYOUT_ARGS[@]}}\" \"${{TRAINING_ARGS[@]}}\" "
      "--fake-process-group\n",
      s.run.gpus, stage, s.run.layout.pp - 1, s.run.gpus);
}

}  // namespace

std::string megatron_lm_text(const ExportSource& s, bool dry_run) {
  std::string text = "set -euo pipefail\n";
  for (const auto& [name, value] : s.config.env)
    text += fmt::format("export {}={}\n", name, shell_quoted(value));
  text += "\n" + array("MODEL_ARGS", model_options(s)) + "\n" +
          array("LAYOUT_ARGS", layout_options(s, dry_run)) + "\n";
  // what a benchmark of the step needs and the run file does not care about
  std::vector<std::string> training{"--tokenizer-type NullTokenizer",
                                    "--mock-data",
                                    fmt::format("--train-iters {}", dry_run ? 3 : 50),
                                    "--eval-iters 0",
                                    "--lr 1e-4",
                                    "--min-lr 1e-5",
                                    "--lr-decay-style constant",
                                    "--log-interval 1",
                                    "--log-throughput",
                                    "--manual-gc"};
  text += array("TRAINING_ARGS", training) + "\n";
  return text + (dry_run ? dry_run_text(s) : launch_text(s));
}

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("_./:=,+-@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string option_words(const json& value) {
  if (value.is_string()) return shell_quoted(value.get<std::string>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const json& item : value) text += (text.empty() ? "" : " ") + option_words(item);
  return text;
}

}  // namespace moecast
