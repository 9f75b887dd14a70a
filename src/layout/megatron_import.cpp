#include "layout/megatron_import.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "layout/enum_names.hpp"
#include "layout/megatron_model.hpp"
#include "layout/megatron_options.hpp"
#include "layout/pipeline_plan.hpp"
#include "layout/run_file.hpp"
#include "layout/uneven_split.hpp"
#include "moecast/model_io.hpp"

namespace moecast {
namespace {

/// Rows of the fullest expert-parallel rank over the mean where a router is left to itself.
constexpr double kNaturalImbalance = 1.2;

constexpr auto kSystems =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"h100", "dgx-h100"},
                                                                  {"h200", "dgx-h200"},
                                                                  {"h800", "dgx-h800"},
                                                                  {"b200", "dgx-b200"},
                                                                  {"b300", "dgx-b300"},
                                                                  {"gb200", "gb200-nvl72"},
                                                                  {"gb300", "gb300-nvl72"}});

class Importer {
 public:
  Importer(const MegatronInput& input, const ImportOptions& options)
      : in_(input),
        c_(input.config),
        options_(options),
        lm_(input.flavour == Flavour::megatron_lm) {
    out_.warnings = input.warnings;
  }

  Result<ImportedRun> read() {
    run().base_dir = std::filesystem::path(in_.file).parent_path().string();
    apply_run_keys();  // some say what the rest is read with; the last word is theirs too
    problems_.clear();
    read_model();
    read_cluster();
    read_sizes();
    read_split();
    read_precision();
    read_experts();
    read_memory();
    read_optimizer();
    read_software();
    read_rest();
    apply_run_keys();
    check_required();
    if (!problems_.empty()) return problems_;
    return std::move(out_);
  }

 private:
  Run& run() { return out_.run; }
  Layout& layout() { return out_.run.layout; }

  void warn(std::string_view field, std::string message, std::string hint = "") {
    out_.warnings.push_back(in_.problem(field, std::move(message), std::move(hint)));
  }
  void fail(std::string key, std::string message, std::string hint) {
    problems_.push_back({in_.file, 0, 0, std::move(key), std::move(message), std::move(hint)});
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
    model_ = model_of(in_);
    if (!options_.model.empty()) {
      run().model = options_.model;
    } else if (is_said("model")) {
      return;
    } else if (model_) {
      match_model();
    } else if (!in_.recipe.empty()) {
      run().model = model_of_recipe(in_.recipe);
      if (run().model.empty())
        fail("model", fmt::format("no shipped model is called like recipe '{}'", in_.recipe),
             "add --model NAME");
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
    if (const auto match = match_shipped_model(*model_)) {
      run().model = match->name;
      run().model_overrides = match->overrides;
      if (!match->differences.empty())
        out_.warnings.push_back({in_.file, 0, 0, "model",
                                 fmt::format("is taken as {}, which differs in {}", match->name,
                                             fmt::join(match->differences, ", ")),
                                 "--model FILE for another"});
      return;
    }
    if (model_->vocab_size < 1)
      return fail("vocab_size", "is not among the options, and no shipped model has these layers",
                  "add --vocab-size N to the input, or --model NAME");
    out_.model = model_;
  }

  void read_cluster() {
    run().gpus = options_.gpus > 0 ? options_.gpus : in_.gpus;
    run().system = options_.system.empty() ? system_of_gpu(c_.gpu) : options_.system;
    if (options_.system.empty() && !c_.gpu.empty() && run().system.empty())
      warn("gpu", fmt::format("'{}' is no GPU of a shipped system", c_.gpu), "add --system NAME");
  }

  void read_sizes() {
    Layout& l = layout();
    l.tp = c_.tensor_model_parallel_size;
    l.pp = c_.pipeline_model_parallel_size;
    l.cp = c_.context_parallel_size;
    l.ep = c_.expert_model_parallel_size;
    const bool one = !lm_ && l.ep > 1;  // Bridge _set_moe_expert_tensor_parallel_default
    l.etp = c_.expert_tensor_parallel_size.value_or(one || !c_.num_experts ? 1 : l.tp);
    l.micro_batch_size = c_.micro_batch_size;
    run().seq_length = c_.seq_length;
    const int dp = std::max(1, run().gpus / std::max(1, l.tp * l.pp * l.cp));
    run().global_batch_size =
        c_.global_batch_size.value_or(lm_ && run().gpus > 0 ? c_.micro_batch_size * dp : 0);
    l.microbatch_group_size_per_vp_stage = c_.microbatch_group_size_per_vp_stage.value_or(0);
    if (l.microbatch_group_size_per_vp_stage == l.pp) l.microbatch_group_size_per_vp_stage = 0;
    const bool sp = c_.sequence_parallel && l.tp > 1;
    if (sp != (l.tp > 1)) l.sequence_parallel = sp ? Tristate::on : Tristate::off;
  }

  /// Chunks per rank, and which layers the stages hold.
  void read_split() {
    Layout& l = layout();
    const int layers = number_of_layers();
    l.vpp = c_.num_virtual_stages_per_pipeline_rank.value_or(1);
    if (const auto per = c_.num_layers_per_virtual_pipeline_stage; per && *per > 0 && layers > 0)
      l.vpp = std::max(1, layers / l.pp / *per);
    if (!c_.pipeline_model_parallel_layout.empty()) {
      run().pipeline_model_parallel_layout = c_.pipeline_model_parallel_layout;
      l.pipeline_split = PipelineSplit::explicit_string;
      const int stages = count_layout_stages(c_.pipeline_model_parallel_layout);
      if (lm_ && stages > 0 && stages % l.pp == 0) l.vpp = stages / l.pp;
      return;
    }
    const bool uneven =
        c_.decoder_first_pipeline_num_layers || c_.decoder_last_pipeline_num_layers ||
        c_.account_for_embedding_in_pipeline_split || c_.account_for_loss_in_pipeline_split;
    if (uneven && l.pp > 1) return read_uneven_split(layers);
    const bool divides =
        layers > 0 && layers % l.pp == 0 && layers / l.pp % std::max(1, l.vpp) == 0;
    l.pipeline_split = divides ? PipelineSplit::automatic : PipelineSplit::megatron;
  }

  int number_of_layers() {
    if (model_) return static_cast<int>(model_->layers.size());
    if (c_.num_layers > 0) return c_.num_layers;
    if (run().model.empty()) return 0;
    const auto model = load_model(run().model, run().model_overrides, run().base_dir);
    return model ? static_cast<int>(model.value().layers.size()) : 0;
  }

  void read_uneven_split(int layers) {
    UnevenSplit split;
    split.first = c_.decoder_first_pipeline_num_layers;
    split.last = c_.decoder_last_pipeline_num_layers;
    split.embedding = c_.account_for_embedding_in_pipeline_split;
    split.loss = c_.account_for_loss_in_pipeline_split;
    const int mtp = model_ ? model_->mtp_num_layers : c_.mtp_num_layers.value_or(0);
    const std::string text = layout_string_of(split, layers, layout().pp, layout().vpp, mtp);
    if (text.empty()) {
      const std::string_view field = split.first  ? "decoder_first_pipeline_num_layers"
                                     : split.last ? "decoder_last_pipeline_num_layers"
                                                  : "account_for_embedding_in_pipeline_split";
      return fail(in_.problem(field, "", "").key,
                  fmt::format("{} layers do not divide over PP {} x VPP {} that way", layers,
                              layout().pp, layout().vpp),
                  "state --pipeline-model-parallel-layout");
    }
    run().pipeline_model_parallel_layout = text;
    layout().pipeline_split = PipelineSplit::explicit_string;
  }

  void read_precision() {
    layout().precision = Precision::bf16;
    if (c_.fp4_format) layout().precision = Precision::nvfp4;
    if (c_.fp8_format && !c_.fp4_format) {
      bool known = false;
      for (const PrecisionNames& names : precision_names()) {
        if (names.recipe != text_of(c_.fp8_recipe)) continue;
        layout().precision = names.precision;
        known = true;
      }
      if (!known)
        fail(in_.problem("fp8_recipe", "", "").key, "is a recipe that a run file has no word for",
             "--set precision=...");
    }
    if (c_.fp16) warn("fp16", "is forecast as bf16: the same speed and size");
    if (lm_ && !c_.fp16 && !c_.bf16)
      warn("bf16", "is not given: FP32 training is not modelled, read as bf16", "add --bf16");
  }

  void read_experts() {
    Layout& l = layout();
    l.overlap_moe_expert_parallel_comm = c_.overlap_moe_expert_parallel_comm;
    l.delay_wgrad_compute = c_.delay_wgrad_compute;
    l.moe_shared_expert_overlap = c_.moe_shared_expert_overlap;
    const bool experts = c_.num_experts.value_or(0) > 0 || !model_;
    if (!experts) return;
    read_dispatcher();
    read_routing();
  }

  void read_dispatcher() {
    Layout& l = layout();
    Word type = c_.moe_token_dispatcher_type;
    if (!lm_ && !in_.is_given("moe_token_dispatcher_type")) type = "alltoall"_w;  // the recipes'
    l.dispatcher = type == "allgather"_w ? Dispatcher::allgather : Dispatcher::alltoall;
    if (type == "flex"_w || c_.moe_enable_deepep) {
      const bool hybrid = !c_.moe_enable_deepep && c_.moe_flex_dispatcher_backend == "hybridep"_w;
      l.dispatcher = hybrid ? Dispatcher::hybridep : Dispatcher::deepep;
      if (c_.moe_flex_dispatcher_backend == "ncclep"_w && !c_.moe_enable_deepep)
        warn("moe_flex_dispatcher_backend", "ncclep is not modelled: read as deepep");
      const auto sms = c_.moe_flex_dispatcher_num_sms ? c_.moe_flex_dispatcher_num_sms
                       : hybrid                       ? c_.moe_hybridep_num_sms
                                                      : c_.moe_deepep_num_sms;
      l.dispatcher_num_sms = sms.value_or(0);
    }
  }

  void read_routing() {
    const double capacity = c_.moe_expert_capacity_factor.value_or(-1);
    if (capacity > 0) run().capacity_factor = capacity;
    const bool known = lm_ || in_.is_given("moe_router_force_load_balancing");
    if (c_.moe_router_force_load_balancing || !known || is_said("moe.routing")) return;
    run().routing.kind = Routing::Kind::imbalance;
    run().routing.imbalance = kNaturalImbalance;
    warn("moe_router_force_load_balancing",
         fmt::format("is off: an imbalance of {} is assumed, as the data decides",
                     kNaturalImbalance),
         "--set moe.routing={imbalance: X}, or force_balance");
  }

  template <typename E>
  ModuleSet<E> modules(std::string_view field, Words words) {
    ModuleSet<E> set;
    for (const std::string& word : texts_of(words)) {
      if (const auto module = enum_from_text<E>(word)) {
        set.add(*module);
      } else {
        warn(field, fmt::format("a run file has no module '{}': left out", word));
      }
    }
    if (const auto other = c_.other_words.find(std::string(field)); other != c_.other_words.end())
      warn(field, fmt::format("'{}' is no module that moecast knows: left out", other->second));
    return set;
  }

  void read_memory() {
    Layout& l = layout();
    const auto granularity =
        enum_from_text<RecomputeGranularity>(text_of(c_.recompute_granularity));
    l.recompute_granularity = granularity.value_or(RecomputeGranularity::none);
    l.recompute_modules = modules<RecomputeModule>("recompute_modules", c_.recompute_modules);
    if (l.recompute_granularity == RecomputeGranularity::selective && !c_.recompute_modules.given)
      l.recompute_modules.add(RecomputeModule::core_attn);
    if (c_.moe_layer_recompute) {
      l.recompute_granularity = RecomputeGranularity::selective;
      l.recompute_modules.add(RecomputeModule::moe);
    }
    l.recompute_method = enum_from_text<RecomputeMethod>(text_of(c_.recompute_method))
                             .value_or(RecomputeMethod::none);
    l.recompute_num_layers = c_.recompute_num_layers.value_or(0);
    if (c_.fine_grained_activation_offloading)
      l.offload_modules = modules<OffloadModule>("offload_modules", c_.offload_modules);
    l.offload_fraction = c_.activation_offload_fraction;
    if (c_.optimizer_cpu_offload) l.optimizer_offload_fraction = c_.optimizer_offload_fraction;
    l.cpu_offloading_num_layers = std::max(0, c_.cpu_offloading_num_layers);
    read_graphs();
  }

  void read_graphs() {
    Layout& l = layout();
    l.cuda_graph_impl =
        enum_from_text<CudaGraphImpl>(text_of(c_.cuda_graph_impl)).value_or(CudaGraphImpl::none);
    Words scope = c_.cuda_graph_modules;
    if (scope.has("full_iteration"_w)) l.cuda_graph_impl = CudaGraphImpl::full_iteration;
    scope.remove("full_iteration"_w);
    scope.remove("full"_w);  // the whole layer, as no module says
    l.cuda_graph_scope = modules<GraphModule>("cuda_graph_modules", scope);
  }

  DType dtype(std::string_view field, Word word) {
    if (const auto type = enum_from_text<DType>(text_of(word))) return *type;
    warn(field, "is no type that a run file has a word for: fp32 is taken");
    return DType::fp32;
  }

  void read_optimizer() {
    Layout& l = layout();
    const auto given = [&](std::string_view name) { return in_.is_given(name); };
    l.distributed_optimizer =
        lm_ || given("use_distributed_optimizer") ? c_.use_distributed_optimizer : true;
    l.precision_aware_optimizer = c_.use_precision_aware_optimizer;
    l.grad_dtype = gradient_type();
    l.master_dtype = dtype("main_params_dtype", c_.main_params_dtype);
    l.moment_dtype = dtype("exp_avg_dtype", c_.exp_avg_dtype);
    if (c_.exp_avg_dtype != c_.exp_avg_sq_dtype)
      warn("exp_avg_sq_dtype", "differs from exp_avg_dtype: a run file has one type for both",
           "the type of exp_avg_dtype is taken");
    l.overlap_grad_reduce = c_.overlap_grad_reduce.value_or(!lm_);
    l.overlap_param_gather = c_.overlap_param_gather.value_or(!lm_);
    l.tp_comm_overlap = c_.tp_comm_overlap;
    const auto types = texts_of(c_.cp_comm_type);
    if (!types.empty())
      l.cp_comm_type = enum_from_text<CpCommType>(types.front()).value_or(CpCommType::p2p);
    if (types.size() > 1) warn("cp_comm_type", "differs by layer: the first is taken for all");
    if (c_.use_megatron_fsdp) l.fsdp = FsdpSharding::optim_grads_params;
    if (c_.use_megatron_fsdp && c_.data_parallel_sharding_strategy != "optim_grads_params"_w &&
        given("data_parallel_sharding_strategy"))
      warn("data_parallel_sharding_strategy", "is read as optim_grads_params, the one modelled");
  }

  DType gradient_type() {
    if (c_.grad_reduce_in_bf16 || c_.main_grads_dtype == "bf16"_w) return DType::bf16;
    const bool harness = in_.kind == InputKind::harness;  // its recipes reduce in BF16
    const bool stated = in_.is_given("accumulate_allreduce_grads_in_fp32");
    const bool in_fp32 = stated ? c_.accumulate_allreduce_grads_in_fp32 : lm_ || !harness;
    return in_fp32 ? DType::fp32 : DType::bf16;
  }

  void read_software() {
    Software& s = run().software;
    s.transformer_engine = c_.te_version;
    s.pytorch = c_.pytorch_version;
    s.megatron_core = c_.megatron_core_version;
    s.bridge = c_.bridge_version;
    s.env = c_.env;
    for (const FeatureField& f : feature_fields()) {
      if (!in_.is_given(f.field) && !(lm_ && f.lm_decides)) continue;
      const nlohmann::json value = get(c_, *find_megatron_field(f.field));
      s.features[std::string(f.feature)] =
          f.on.empty() ? value == nlohmann::json(true) : value == nlohmann::json(f.on);
    }
    if (s.features["te_cross_entropy"] && !c_.cross_entropy_loss_fusion)
      s.features["te_cross_entropy"] = false;
    if (!lm_ && !in_.is_given("cross_entropy_fusion_impl")) s.features.erase("te_cross_entropy");
    if (c_.moe_paged_stash && c_.moe_expert_rank_capacity_factor)
      s.env["moe_expert_rank_capacity_factor"] =
          fmt::format("{}", *c_.moe_expert_rank_capacity_factor);
    if (c_.transformer_impl == "local"_w) {
      s.container = "megatron-local-2026-08";
      warn("transformer_impl",
           "local layers: software.container is the stack without Transformer "
           "Engine that ships");
    }
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

  const MegatronInput& in_;
  const MegatronConfig& c_;
  const ImportOptions& options_;
  const bool lm_;
  std::optional<ModelSpec> model_;
  ImportedRun out_;
  Diagnostics problems_;
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

Result<ImportedRun> import_run(const MegatronInput& input, const ImportOptions& options) {
  return Importer(input, options).read();
}

}  // namespace moecast
