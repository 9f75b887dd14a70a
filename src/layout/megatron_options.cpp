#include "layout/megatron_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "core/document.hpp"
#include "core/shell.hpp"

namespace moecast {
namespace {

using nlohmann::json;

/// Older and other spellings of Megatron-LM's options. Ref: megatron/training/arguments.py.
struct Alias {
  std::string_view flag, field;
  const char* implied;  ///< JSON; empty = takes words
};
constexpr std::array kAliases = std::to_array<Alias>({
    {"--cuda-graph-scope", "cuda_graph_modules", ""},
    {"--enable-cuda-graph", "cuda_graph_impl", "\"local\""},
    {"--external-cuda-graph", "cuda_graph_impl", "\"transformer_engine\""},
    {"--recompute-activations", "recompute_granularity", "\"selective\""},
    {"--overlap-p2p-communication", "overlap_p2p_comm", "true"},
    {"--num-moe-experts", "num_experts", ""},
    {"--encoder-num-layers", "num_layers", ""},
    {"--encoder-seq-length", "seq_length", ""},
    {"--use-custom-fsdp", "use_megatron_fsdp", "true"},
    {"--fake-init-process-group", "fake_process_group", "true"},
    {"--fp8-hybrid", "fp8_format", "\"hybrid\""},
    {"--fp8-e4m3", "fp8_format", "\"e4m3\""},
});

/// Starts of names: data, tokenizer, learning rate, checkpoints, logging, initialisation, launch.
constexpr std::array kSilent = std::to_array<std::string_view>({"lr",
                                                                "min_lr",
                                                                "weight_decay",
                                                                "start_weight_decay",
                                                                "end_weight_decay",
                                                                "adam_",
                                                                "sgd_",
                                                                "clip_grad",
                                                                "train_iters",
                                                                "train_samples",
                                                                "exit_",
                                                                "save",
                                                                "load",
                                                                "no_save",
                                                                "no_load",
                                                                "non_persistent",
                                                                "finetune",
                                                                "log_",
                                                                "logging_",
                                                                "tensorboard",
                                                                "wandb",
                                                                "no_log",
                                                                "data",
                                                                "train_data",
                                                                "valid_data",
                                                                "test_data",
                                                                "split",
                                                                "tokenizer",
                                                                "vocab_file",
                                                                "merge_file",
                                                                "vocab_extra",
                                                                "eval_",
                                                                "init_method",
                                                                "seed",
                                                                "num_workers",
                                                                "norm_epsilon",
                                                                "layernorm_epsilon",
                                                                "rotary_base",
                                                                "rotary_percent",
                                                                "rotary_scaling",
                                                                "use_rotary",
                                                                "rope_scaling",
                                                                "rope_theta",
                                                                "use_rope_scaling",
                                                                "mscale",
                                                                "original_max_position",
                                                                "beta_",
                                                                "no_rope_scaling",
                                                                "use_mcore",
                                                                "use_legacy",
                                                                "use_flash_attn",
                                                                "attention_backend",
                                                                "manual_gc",
                                                                "profile",
                                                                "use_pytorch_profiler",
                                                                "mock_data",
                                                                "override_",
                                                                "use_checkpoint",
                                                                "ckpt_",
                                                                "async_save",
                                                                "dist_ckpt",
                                                                "auto_detect",
                                                                "use_dist_ckpt",
                                                                "use_persistent_ckpt",
                                                                "moe_router_topk_scaling",
                                                                "moe_z_loss",
                                                                "moe_token_drop",
                                                                "moe_router_bias",
                                                                "moe_aux_loss",
                                                                "moe_router_load",
                                                                "moe_per_layer",
                                                                "enable_experimental",
                                                                "no_mmap",
                                                                "mmap_",
                                                                "no_create_attention_mask",
                                                                "create_attention_mask",
                                                                "reset_",
                                                                "eod_",
                                                                "no_shared",
                                                                "timing_",
                                                                "no_masked_softmax",
                                                                "no_persist_layer_norm",
                                                                "attention_softmax_in_fp32",
                                                                "apply_query_key_layer_scaling",
                                                                "no_query_key_layer",
                                                                "initial_loss_scale",
                                                                "loss_scale",
                                                                "hysteresis",
                                                                "rampup",
                                                                "consumed_",
                                                                "iteration",
                                                                "transformer_impl",
                                                                "max_position",
                                                                "distributed_timeout",
                                                                "distributed_backend",
                                                                "local_rank",
                                                                "rank",
                                                                "use_cpu_init",
                                                                "make_vocab_size",
                                                                "null_tokenizer",
                                                                "apply_layernorm_1p",
                                                                "add_position_embedding",
                                                                "position_embedding",
                                                                "rope_type",
                                                                "no_position",
                                                                "inference",
                                                                "ddp_average",
                                                                "no_barrier_with",
                                                                "barrier_with",
                                                                "straggler",
                                                                "check_weight",
                                                                "log",
                                                                "one_logger",
                                                                "no_one_logger",
                                                                "enable_one_logger",
                                                                "te_rng",
                                                                "deterministic",
                                                                "mtp_loss",
                                                                "ffn_dropout",
                                                                "attention_dropout",
                                                                "hidden_dropout",
                                                                "normalization",
                                                                "use_distributed_",
                                                                "rerun_",
                                                                "error_injection",
                                                                "result_rejected",
                                                                "seq_length_",
                                                                "decoder_seq_length",
                                                                "cache_dir",
                                                                "dataloader",
                                                                "disable_tp_comm",
                                                                "tp_comm_",
                                                                "no_bias",
                                                                "bias_",
                                                                "no_async",
                                                                "calculate_",
                                                                "delay_offload",
                                                                "use_separate_send",
                                                                "moe_grouped_gemm",
                                                                "cuda_graph_warmup"});

/// The shape of a model that Megatron can say and no rule reads.
constexpr std::array kModelOptions = std::to_array<std::string_view>(
    {"make_vocab_size_divisible_by", "window_size", "window_attn_skip_freq",
     "moe_shared_expert_gate", "mtp_use_repeated_layer", "hybrid_override_pattern",
     "hybrid_layer_pattern", "is_hybrid_model", "linear_attention_freq", "padded_vocab_size"});

constexpr std::array kVariables = std::to_array<std::string_view>(
    {"CUDA_DEVICE_", "NVTE_", "NCCL_", "TORCH_NCCL_", "PYTORCH_", "NUM_OF_", "USE_MNNVL",
     "NVLINK_DOMAIN_SIZE", "HYBRID_EP_", "DEEP_EP_", "CUDNN_", "TORCHINDUCTOR_"});

template <std::size_t N>
bool starts_with_any(std::string_view name, const std::array<std::string_view, N>& starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [&](std::string_view start) { return name.starts_with(start); });
}

std::string with_dashes(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}
std::string with_underscores(std::string_view flag) {
  std::string name(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

template <typename T>
constexpr bool is_flag = std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>;
template <typename T>
constexpr bool is_number = std::is_same_v<T, int> || std::is_same_v<T, std::optional<int>> ||
                           std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>;
template <typename T>
constexpr bool is_list = std::is_same_v<T, Words> || std::is_same_v<T, std::vector<int>> ||
                         std::is_same_v<T, std::vector<double>>;

/// Calls `f` with a null pointer to the field's type.
auto with_type(const MegatronField& field, auto f) {
  return std::visit([&]<typename T>(T MegatronConfig::*) { return f(static_cast<T*>(nullptr)); },
                    field.member);
}
bool field_is_flag(const MegatronField& field) {
  return with_type(field, []<typename T>(T*) { return is_flag<T>; });
}

/// A number when the whole text is one, else the text: the field says what is wrong with it.
json number_or_text(const std::string& text) {
  long long whole = 0;
  const char* end = text.data() + text.size();
  if (const auto [p, e] = std::from_chars(text.data(), end, whole); e == std::errc() && p == end)
    return whole;
  double number = 0;
  if (const auto [p, e] = std::from_chars(text.data(), end, number); e == std::errc() && p == end)
    return number;
  return text;
}

json flag_or_text(const std::string& text) {
  if (text == "true" || text == "True" || text == "1") return true;
  if (text == "false" || text == "False" || text == "0") return false;
  return text;
}

/// [a, b] or ["a", "b"] as Hydra and YAML write lists; commas and blanks do too.
std::vector<std::string> list_items(std::string text) {
  std::vector<std::string> items(1);
  for (const char c : text) {
    if (std::string_view("[]()\"' \t").find(c) != std::string_view::npos) continue;
    if (c == ',') {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  if (items.back().empty()) items.pop_back();
  return items;
}

bool is_none(const std::string& text) {
  return text == "None" || text == "null" || text == "none" || text == "~";
}

}  // namespace

bool is_silent_option(std::string_view name) { return starts_with_any(name, kSilent); }
bool is_model_option(std::string_view name) {
  return std::find(kModelOptions.begin(), kModelOptions.end(), name) != kModelOptions.end();
}

FlagMeaning find_flag(std::string_view spelling) {
  for (const Alias& alias : kAliases) {
    if (alias.flag == spelling) {
      return {find_megatron_field(alias.field),
              *alias.implied == '\0' ? json() : json::parse(alias.implied)};
    }
  }
  const std::string dashed = with_dashes(spelling);
  static const MegatronConfig defaults = default_config(Flavour::megatron_lm);
  for (const MegatronField& field : megatron_fields()) {
    if (field.flag != dashed) continue;
    if (!field_is_flag(field)) return {&field, json()};
    return {&field, !get(defaults, field).is_boolean() ? json(!dashed.starts_with("--no-"))
                                                       : json(!get(defaults, field).get<bool>())};
  }
  const bool negated = dashed.starts_with("--no-");
  const MegatronField* field =
      find_megatron_field(with_underscores(dashed.substr(negated ? 4 : 0)));
  if (field == nullptr || (negated && !field_is_flag(*field))) return {};
  return {field, field_is_flag(*field) ? json(!negated) : json()};
}

json words_value(const MegatronField& field, const std::vector<std::string>& words) {
  return with_type(field, [&]<typename T>(T*) -> json {
    std::string all = fmt::format("{}", fmt::join(words, " "));
    if constexpr (is_list<T>) {
      std::erase_if(all, [](char c) { return c == '\'' || c == '"'; });  // left over from an eval
      if (std::is_same_v<T, std::vector<int>> && all.find('*') != std::string::npos) return all;
      json list = json::array();
      for (const std::string& word : words) {
        for (const std::string& item : list_items(word))
          list.push_back(std::is_same_v<T, Words> ? json(item) : number_or_text(item));
      }
      return list.size() == 1 && is_none(all) ? json() : list;
    } else if constexpr (is_flag<T>) {
      return flag_or_text(all);
    } else if constexpr (is_number<T>) {
      return is_none(all) ? json() : number_or_text(all);
    } else {
      const bool word_none = std::is_same_v<T, Word> && all == "none";  // a word of some options
      return is_none(all) && !word_none ? json() : json(all);
    }
  });
}

void OptionReader::flag(const std::string& spelling, std::vector<std::string> words, int line) {
  const FlagMeaning meaning = find_flag(spelling);
  const std::string name = with_underscores(spelling);
  if (meaning.field == nullptr) return unknown(spelling, name, line, words);
  drop_open_words(*meaning.field, spelling, words, line);
  if (words.empty()) {
    if (meaning.implied.is_null() && is_silent_option(name)) return;
    if (meaning.implied.is_null())
      return fail(line, spelling, "needs a value", "write it after the option");
    return set(meaning.field->name, spelling, meaning.implied, line);
  }
  json value = words_value(*meaning.field, words);
  const bool negated = meaning.implied.is_boolean() && !meaning.implied.get<bool>();
  if (negated && value.is_boolean()) value = !value.get<bool>();
  set(meaning.field->name, spelling, value, line);
}

/// `--sequence-parallel ${MORE_ARGS}`: a word that nobody set is no value where one is complete.
void OptionReader::drop_open_words(const MegatronField& field, const std::string& spelling,
                                   std::vector<std::string>& words, int line) {
  const std::size_t own = field_is_flag(field) ? 0 : 1;
  for (std::size_t i = own; i < words.size();) {
    if (words[i].empty() || words[i][0] != '$') {
      ++i;
      continue;
    }
    const auto names = undecided_names(words[i]);
    warn(line, spelling,
         fmt::format("the options in {} after it are not known: left out", words[i]),
         names.empty() ? "" : fmt::format("give them: --var {}=VALUE", names[0]));
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void OptionReader::unknown(const std::string& spelling, const std::string& name, int line,
                           const std::vector<std::string>& words) {
  if (is_model_option(name)) {
    input_.other[name] = words.empty() ? "true" : fmt::format("{}", fmt::join(words, " "));
    return;
  }
  if (is_silent_option(name)) return;
  const std::string near = nearest_name(name, megatron_field_names());
  const MegatronField* field = near.empty() ? nullptr : find_megatron_field(near);
  std::string hint = "nothing of it is kept";
  if (field != nullptr) {
    hint = fmt::format("did you mean '{}'?", spelling.starts_with("-") && !field->flag.empty()
                                                 ? field->flag
                                                 : std::string(field->name));
  }
  warn(line, spelling, "is no option that moecast knows", hint);
}

void OptionReader::assignment(const std::string& path, const std::string& value, int line) {
  if (path.starts_with("env_vars.")) return environment(path.substr(9), value);
  if (path == "mixed_precision") {
    for (const PrecisionNames& names : precision_names()) {
      if (names.bridge != value) continue;
      set_precision(input_.config, names);
      input_.given["bf16"] = {"bf16", path, line};
      return;
    }
    return warn(line, path, fmt::format("'{}' is no recipe that moecast knows", value),
                "set mixed_precision.fp8 and mixed_precision.fp8_recipe");
  }
  const std::string name = path.substr(path.rfind('.') + 1);
  const MegatronField* field = find_megatron_field(name);
  if (field == nullptr) return unknown(path, name, line, {value});
  set(field->name, path, words_value(*field, {value}), line);
}

void OptionReader::value(const std::string& spelling, const json& value, int line) {
  const FlagMeaning meaning = find_flag(spelling.starts_with("--") ? spelling : "--" + spelling);
  const MegatronField* field = meaning.field;
  if (field == nullptr) {
    if (value == json(false)) return;
    return unknown(spelling, with_underscores(spelling), line,
                   {value.is_string() ? value.get<std::string>() : value.dump()});
  }
  if (value.is_string()) {
    const std::string text = expand_text(value.get<std::string>(), variables_);
    const auto words = read_shell(text, "");  // several words of a list
    std::vector<std::string> parts;
    if (text.find(' ') != std::string::npos && !words.commands.empty()) {
      for (const ShellWord& word : words.commands.front().words) parts.push_back(word.text);
    } else {
      parts.push_back(text);
    }
    return set(field->name, spelling, words_value(*field, parts), line);
  }
  const bool negated = meaning.implied.is_boolean() && !meaning.implied.get<bool>();
  if (negated && value.is_boolean() && spelling.starts_with("--"))
    return value.get<bool>() ? set(field->name, spelling, false, line) : void();
  set(field->name, spelling, value, line);
}

void OptionReader::environment(const std::string& name, const std::string& value) {
  if (!starts_with_any(name, kVariables) || is_undecided(value)) return;
  input_.config.env[name] = value;
}

void OptionReader::set(std::string_view name, const std::string& spelling, const json& value,
                       int line) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (is_undecided(text)) {
    const std::vector<std::string> names = undecided_names(text);
    const MegatronField* field = find_megatron_field(name);
    const bool matters = field != nullptr && !field->run_key.empty();
    const std::string hint =
        names.empty() ? "write the value itself" : fmt::format("give it: --var {}=VALUE", names[0]);
    return matters ? fail(line, spelling, fmt::format("depends on {}", text), hint)
                   : warn(line, spelling, fmt::format("depends on {}: not taken", text), hint);
  }
  const auto problem = moecast::set(input_.config, name, value);
  if (problem) return fail(line, spelling, problem->message, problem->hint);
  input_.given[std::string(name)] = {std::string(name), spelling, line};
}

void OptionReader::warn(int line, std::string key, std::string message, std::string hint) {
  input_.warnings.push_back(
      {input_.file, line, 0, std::move(key), std::move(message), std::move(hint)});
}
void OptionReader::fail(int line, std::string key, std::string message, std::string hint) {
  problems.push_back({input_.file, line, 0, std::move(key), std::move(message), std::move(hint)});
}

}  // namespace moecast
