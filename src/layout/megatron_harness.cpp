// Options of Megatron-Bridge's performance harness. Ref: scripts/performance/argument_parser.py and
// utils/overrides.py.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "layout/megatron_readers.hpp"

namespace moecast {
namespace {

using nlohmann::json;

/// Short and long spelling of what the field table's harness column names by one of the two.
struct Spelling {
  std::string_view short_name, long_name;
};
constexpr std::array kSpellings = std::to_array<Spelling>({
    {"-ng", "--num_gpus"},
    {"-g", "--gpu"},
    {"-mb", "--micro_batch_size"},
    {"-gb", "--global_batch_size"},
    {"-sl", "--seq_length"},
    {"-tp", "--tensor_model_parallel_size"},
    {"-pp", "--pipeline_model_parallel_size"},
    {"-cp", "--context_parallel_size"},
    {"-vp", "--virtual_pipeline_model_parallel_size"},
    {"-ep", "--expert_model_parallel_size"},
    {"-et", "--expert_tensor_parallel_size"},
    {"-rl", "--recompute_num_layers"},
    {"-ol", "--activation_offload_layers"},
    {"-c", "--compute_dtype"},
    {"-mr", "--model_recipe_name"},
    {"-m", "--model_family_name"},
    {"-E", "--env"},
    {"-ce", "--custom_env_vars"},
    {"-cv", "--config_variant"},
});

/// Launch, data, logging, profiling: nothing that a step depends on.
constexpr std::array kSilentHarness =
    std::to_array<std::string_view>({"-m",
                                     "--domain",
                                     "--task",
                                     "-nh",
                                     "--nemo_home",
                                     "--detach",
                                     "--max_retries",
                                     "-d",
                                     "--dryrun",
                                     "-ms",
                                     "--max_steps",
                                     "--warmup_iters",
                                     "--packager",
                                     "-a",
                                     "--account",
                                     "-p",
                                     "--partition",
                                     "-t",
                                     "--time_limit",
                                     "-gn",
                                     "--gpus_per_node",
                                     "-i",
                                     "--container_image",
                                     "-cm",
                                     "--custom_mounts",
                                     "-cs",
                                     "--custom_srun_args",
                                     "-cb",
                                     "--custom_bash_cmds",
                                     "--gres",
                                     "--additional_slurm_params",
                                     "--enable_pct_binding",
                                     "-en",
                                     "--enable_nsys",
                                     "--export_nsys_sqlite",
                                     "-pyp",
                                     "--pytorch_profiler",
                                     "-vb",
                                     "--enable_vboost",
                                     "-lgc",
                                     "--lock_gpu_freq",
                                     "-mh",
                                     "-wdk",
                                     "-wdp",
                                     "-wde",
                                     "-wdj",
                                     "-wds",
                                     "-l",
                                     "-hf",
                                     "--hf_token",
                                     "--offline",
                                     "--nsys_trace",
                                     "--dump_env",
                                     "--use_recipes",
                                     "--pretrained_checkpoint",
                                     "--most_recent_k",
                                     "--index_mapping_dir",
                                     "-cv",
                                     "--list_config_variants",
                                     "--is_long_convergence_run"});

std::string short_of(const std::string& spelling) {
  for (const Spelling& s : kSpellings)
    if (s.long_name == spelling) return std::string(s.short_name);
  return spelling;
}

bool truth(const std::vector<std::string>& words) {
  static const std::vector<std::string> yes{"true", "True", "1", "t", "yes", "y"};
  return !words.empty() && std::find(yes.begin(), yes.end(), words.front()) != yes.end();
}

void set_pairs(const std::string& text, char separator, OptionReader& reader) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end =
        separator == '\0' ? rest.size() : std::min(rest.find(separator), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const std::size_t equals = pair.find('=');
    if (equals != std::string_view::npos)
      reader.environment(std::string(pair.substr(0, equals)), std::string(pair.substr(equals + 1)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

/// What --compute_dtype says, with its words.
void set_compute_dtype(const std::string& spelling, const std::string& word, int line,
                       MegatronInput& input, OptionReader& reader) {
  std::vector<std::string> known;
  for (const PrecisionNames& names : precision_names()) {
    if (!names.harness.empty()) known.emplace_back(names.harness);
    if (names.harness != word) continue;
    set_precision(input.config, names);
    input.given["bf16"] = {"bf16", spelling, line};
    return;
  }
  reader.fail(line, spelling, fmt::format("'{}' is no compute type", word),
              suggestion(word, known));
}

/// Options that set several fields at once.
bool compound(const std::string& name, const std::string& spelling,
              const std::vector<std::string>& words, int line, MegatronInput& input,
              OptionReader& reader) {
  const std::string first = words.empty() ? "" : words.front();
  const auto set = [&](std::string_view field, const json& value) {
    reader.set(field, spelling, value, line);
  };
  const auto typed = [&](std::string_view field) {
    set(field, words_value(*find_megatron_field(field), words));
  };
  if (name == "-c") {
    set_compute_dtype(spelling, first, line, input, reader);
  } else if (name == "-mr") {
    input.recipe = first;
  } else if (name == "-E") {
    for (const std::string& word : words) set_pairs(word, '\0', reader);
  } else if (name == "-ce") {
    set_pairs(first, ',', reader);
  } else if (name == "-tp") {  // also decides about sequence parallelism
    typed("tensor_model_parallel_size");
    set("sequence_parallel", first != "1");
  } else if (name == "-vp") {
    if (first != "-1") typed("num_virtual_stages_per_pipeline_rank");
  } else if (name == "-rl") {
    set("recompute_granularity", "full");
    set("recompute_method", "block");
    typed("recompute_num_layers");
  } else if (name == "--recompute_modules") {
    set("recompute_granularity", "selective");
    typed("recompute_modules");
  } else if (name == "-ol") {
    set("cpu_offloading", true);
    typed("cpu_offloading_num_layers");
  } else if (name == "--moe_a2a_overlap") {
    set("overlap_moe_expert_parallel_comm", truth(words));
    set("delay_wgrad_compute", truth(words));
    if (truth(words)) set("moe_shared_expert_overlap", false);
  } else if (name == "--moe_flex_dispatcher_backend") {
    if (first == "-1") return true;
    set("moe_token_dispatcher_type", first == "None" ? "alltoall" : "flex");
    if (first != "None") typed("moe_flex_dispatcher_backend");
    if (first == "hybridep") set("moe_flex_dispatcher_num_sms", 32);  // _set_common_perf_overrides
  } else if (name == "--use_tokendrop") {
    if (truth(words)) {
      set("moe_expert_capacity_factor", 1.0);
      set("moe_pad_expert_input_to_capacity", true);
    }
    set("moe_router_force_load_balancing", !truth(words));
  } else if (name == "--use_megatron_fsdp") {
    set("use_megatron_fsdp", truth(words));
    if (truth(words)) set("data_parallel_sharding_strategy", "optim_grads_params");
  } else if (name == "--nccl_ub") {
    set("nccl_ub", truth(words));
  } else if (name == "--first_k_dense_replace") {
    input.other["first_k_dense_replace"] = first;
  } else if (name == "-g") {
    input.config.gpu = first;
    input.given["gpu"] = {"gpu", spelling, line};
  } else if (name == "-ng") {
    typed("world_size");
  } else {
    return false;
  }
  return true;
}

}  // namespace

const std::vector<PrecisionNames>& precision_names() {
  using enum Precision;
  static const std::vector<PrecisionNames> table{
      {bf16, "bf16_mixed", "bf16", "", "", false},
      {fp8_tensorwise, "bf16_with_fp8_current_scaling_mixed", "fp8_cs", "hybrid", "tensorwise",
       true},
      {fp8_delayed, "bf16_with_fp8_delayed_scaling_mixed", "", "hybrid", "delayed", true},
      {fp8_blockwise, "bf16_with_fp8_subchannel_scaling_mixed", "fp8_sc", "hybrid", "blockwise",
       false},
      {mxfp8, "bf16_with_mxfp8_mixed", "fp8_mx", "e4m3", "mxfp8", true},
      {nvfp4, "bf16_with_nvfp4_mixed", "nvfp4", "e2m1", "nvfp4", true},
  };
  return table;
}

void set_precision(MegatronConfig& config, const PrecisionNames& names) {
  const bool fp4 = names.precision == Precision::nvfp4, fp8 = !fp4 && !names.format.empty();
  config.bf16 = true;
  config.fp16 = false;
  config.fp8_format = fp8 ? find_word(names.format) : Word{};
  config.fp4_format = fp4 ? find_word(names.format) : Word{};
  if (fp8) config.fp8_recipe = find_word(names.recipe);
  config.fp8_param_gather = fp8 && names.param_gather;
  config.fp4_param_gather = fp4;
  config.reuse_grad_buf_for_mxfp8_param_ag = names.precision == Precision::mxfp8;
}

bool is_harness_script(std::string_view word) {
  const std::string_view name = word.substr(word.rfind('/') + 1);
  return name == "setup_experiment.py" || name == "run_script.py";
}

bool read_harness_option(const std::string& spelling, const std::vector<std::string>& words,
                         int line, MegatronInput& input, OptionReader& reader) {
  const std::string name = short_of(spelling);
  if (compound(name, spelling, words, line, input, reader)) return true;
  if (std::find(kSilentHarness.begin(), kSilentHarness.end(), name) != kSilentHarness.end())
    return true;
  for (const MegatronField& field : megatron_fields()) {
    if (field.harness != name) continue;
    reader.set(field.name, spelling, words_value(field, words), line);
    return true;
  }
  return false;
}

}  // namespace moecast
