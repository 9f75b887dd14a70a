#include "layout/megatron_import.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "layout/import_parts.hpp"
#include "layout/megatron_model.hpp"
#include "layout/megatron_options.hpp"
#include "layout/run_file.hpp"
#include "moecast/model_io.hpp"

namespace moecast {
namespace {

constexpr auto kSystems =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"h100", "dgx-h100"},
                                                                  {"h200", "dgx-h200"},
                                                                  {"h800", "dgx-h800"},
                                                                  {"b200", "dgx-b200"},
                                                                  {"b300", "dgx-b300"},
                                                                  {"gb200", "gb200-nvl72"},
                                                                  {"gb300", "gb300-nvl72"}});

class Importer : ImportPart {
 public:
  Importer(ImportState& state, const ImportOptions& options)
      : ImportPart(state), out_(state.out), problems_(state.problems), options_(options) {}

  Result<ImportedRun> read() {
    run().base_dir = std::filesystem::path(in_.file).parent_path().string();
    apply_run_keys();  // some say what the rest is read with; the last word is theirs too
    problems_.clear();
    read_model();
    read_cluster();
    state_.layers = number_of_layers();
    state_.routing_said = is_said("moe.routing");
    import_layout(state_);
    import_training(state_);
    read_rest();
    apply_run_keys();
    check_required();
    if (!problems_.empty()) return problems_;
    return std::move(out_);
  }

 private:
  void fail(std::string key, std::string message, std::string hint) {
    state_.fail(std::move(key), std::move(message), std::move(hint));
  }

  /// A "# moecast: key=value" line says it, or --set does.
  [[nodiscard]] bool is_said(std::string_view key) const {
    const auto names = [&](const std::string& set) {
      return set.starts_with(std::string(key) + "=");
    };
    return std::any_of(in_.run_keys.begin(), in_.run_keys.end(),
                       [&](const auto& k) { return names(k.first); }) ||
           std::any_of(options_.sets.begin(), options_.sets.end(), names);
  }

  void read_model() {
    state_.model = model_of(in_);
    if (!options_.model.empty()) {
      run().model = options_.model;
    } else if (is_said("model")) {
      return;
    } else if (state_.model) {
      match_model();
    } else if (!in_.recipe.empty()) {
      run().model = model_of_recipe(in_.recipe);
      if (run().model.empty()) {
        fail("model", fmt::format("no shipped model is called like recipe '{}'", in_.recipe),
             "add --model NAME");
      }
      out_.warnings.push_back(
          {in_.file, 0, 0, "-mr",
           fmt::format("what recipe '{}' sets itself is not known here: options that are not given "
                       "have the harness's common values",
                       in_.recipe),
           "give the options that matter"});
      cut_recipe_model();
    } else {
      fail("model", "the input does not describe the model's layers", "add --model NAME");
    }
  }

  /// --num_layers and --num_moe_experts of the harness shorten the recipe's model.
  void cut_recipe_model() {
    if (in_.is_given("num_layers")) run().model_overrides["num_hidden_layers"] = c_.num_layers;
    if (in_.is_given("num_experts")) run().model_overrides["n_routed_experts"] = *c_.num_experts;
    if (in_.is_given("mtp_num_layers"))
      run().model_overrides["num_nextn_predict_layers"] = c_.mtp_num_layers.value_or(0);
    const auto dense = in_.other.find("first_k_dense_replace");
    if (dense != in_.other.end())
      apply("model_overrides.first_k_dense_replace=" + dense->second, "--first_k_dense_replace", 0);
  }

  void match_model() {
    if (const auto match = match_shipped_model(*state_.model)) {
      run().model = match->name;
      run().model_overrides = match->overrides;
      if (!match->differences.empty()) {
        out_.warnings.push_back({in_.file, 0, 0, "model",
                                 fmt::format("is taken as {}, which differs in {}", match->name,
                                             fmt::join(match->differences, ", ")),
                                 "--model FILE for another"});
      }
      return;
    }
    if (state_.model->vocab_size < 1) {
      return fail("vocab_size", "is not among the options, and no shipped model has these layers",
                  "add --vocab-size N to the input, or --model NAME");
    }
    out_.model = state_.model;
  }

  void read_cluster() {
    run().gpus = options_.gpus > 0 ? options_.gpus : in_.gpus;
    run().system = options_.system.empty() ? system_of_gpu(c_.gpu) : options_.system;
    if (options_.system.empty() && !c_.gpu.empty() && run().system.empty())
      warn("gpu", fmt::format("'{}' is no GPU of a shipped system", c_.gpu), "add --system NAME");
  }

  int number_of_layers() {
    if (state_.model) return static_cast<int>(state_.model->layers.size());
    if (c_.num_layers > 0) return c_.num_layers;
    if (run().model.empty()) return 0;
    const ModelSpec* shipped = run().model_overrides.empty() ? shipped_model(run().model) : nullptr;
    if (shipped != nullptr) return static_cast<int>(shipped->layers.size());
    const auto model = load_model(run().model, run().model_overrides, run().base_dir);
    return model ? static_cast<int>(model.value().layers.size()) : 0;
  }

  /// Options that were read and that a run file has no key for.
  void read_rest() {
    const MegatronConfig defaults = default_config(in_.flavour);
    for (const auto& [name, given] : in_.given) {
      const MegatronField* field = find_megatron_field(name);
      if (field == nullptr || !field->run_key.empty() || is_silent_option(name)) continue;
      if (get(c_, *field) == get(defaults, *field) || is_taken(name)) continue;
      warn(name, "a run file has no key for it: left out");
    }
  }

  /// Fields that other keys of the run say.
  static bool is_taken(std::string_view name) {
    for (const std::string_view taken :
         {"num_layers_per_virtual_pipeline_stage", "decoder_first_pipeline_num_layers",
          "decoder_last_pipeline_num_layers", "account_for_embedding_in_pipeline_split",
          "account_for_loss_in_pipeline_split", "moe_deepep_num_sms", "moe_hybridep_num_sms",
          "moe_enable_deepep", "moe_layer_recompute", "fp8_param_gather", "fp4_param_gather",
          "reuse_grad_buf_for_mxfp8_param_ag", "fp8_output_proj", "cross_entropy_loss_fusion",
          "cross_entropy_fusion_impl", "apply_rope_fusion",
          "overlap_param_gather_with_optimizer_step"})
      if (name == taken) return true;
    return false;
  }

  void apply(const std::string& assignment, const std::string& key, int line) {
    for (Diagnostic& problem : apply_set(run(), assignment)) {
      problem.file = line > 0 ? in_.file : problem.file;
      problem.line = line;
      if (problem.key.empty()) problem.key = key;
      problems_.push_back(std::move(problem));
    }
  }

  void apply_run_keys() {
    for (const auto& [assignment, line] : in_.run_keys) {
      const bool overruled =
          (assignment.starts_with("model=") && !options_.model.empty()) ||
          (assignment.starts_with("cluster.system=") && !options_.system.empty()) ||
          (assignment.starts_with("cluster.gpus=") && options_.gpus > 0);
      if (!overruled) apply(assignment, "", line);
    }
    for (const std::string& assignment : options_.sets) apply(assignment, "--set", 0);
  }

  void check_required() {
    const Run& r = run();
    if (r.system.empty())
      fail("cluster.system", "the input does not say what GPUs it runs on", "add --system NAME");
    if (r.gpus < 1)
      fail("cluster.gpus", "the input does not say how many GPUs it runs on", "add --gpus N");
    if (r.seq_length < 1) fail("train.seq_length", "is not given", "--set train.seq_length=4096");
    if (r.global_batch_size < 1)
      fail("train.global_batch_size", "is not given", "--set train.global_batch_size=256");
  }

  ImportedRun& out_;
  Diagnostics& problems_;
  const ImportOptions& options_;
};

}  // namespace

const std::vector<FeatureField>& feature_fields() {
  static const std::vector<FeatureField> table{
      {"fused_grouped_mlp", "use_transformer_engine_op_fuser", "", true},
      {"paged_stash", "moe_paged_stash", "", true},
      {"permute_fusion", "moe_permute_fusion", "", true},
      {"router_fusion", "moe_router_fusion", "", true},
      {"router_dtype_fp32", "moe_router_dtype", "fp32", true},
      {"rope_fusion", "apply_rope_fusion", "", true},
      {"te_cross_entropy", "cross_entropy_fusion_impl", "te", true},
      {"moe_router_padding_for_quantization", "moe_router_padding_for_quantization", "", true},
      {"moe_use_grouped_tensor", "moe_use_grouped_tensor", "", true},
      {"first_last_layers_bf16", "first_last_layers_bf16", "", true},
      {"fp8_output_proj", "fp8_output_proj", "", true},
      {"fp8_param_gather", "fp8_param_gather", ""},
      {"overlap_param_gather_with_optimizer_step", "overlap_param_gather_with_optimizer_step", "",
       true},
  };
  return table;
}

std::string system_of_gpu(std::string_view gpu) {
  for (const auto& [name, system] : kSystems)
    if (name == gpu) return std::string(system);
  return "";
}

std::string gpu_of_system(std::string_view system) {
  for (const auto& [name, known] : kSystems)
    if (known == system) return std::string(name);
  return "";
}

void ImportState::warn(std::string_view field, std::string message, std::string hint) {
  out.warnings.push_back(in.problem(field, std::move(message), std::move(hint)));
}
void ImportState::fail(std::string key, std::string message, std::string hint) {
  problems.push_back({in.file, 0, 0, std::move(key), std::move(message), std::move(hint)});
}

Result<ImportedRun> import_run(const MegatronInput& input, const ImportOptions& options) {
  ImportState state{input, {}, 0, false, {}, {}};
  state.out.warnings = input.warnings;
  return Importer(state, options).read();
}

}  // namespace moecast
