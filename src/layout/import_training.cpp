#include <algorithm>

#include <fmt/format.h>

#include "layout/enum_names.hpp"
#include "layout/import_parts.hpp"

namespace moecast {
namespace {

class TrainingPart : ImportPart {
 public:
  explicit TrainingPart(ImportState& state) : ImportPart(state) {}

  void read() {
    read_memory();
    read_graphs();
    read_optimizer();
    read_software();
  }

 private:
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
    if (c_.exp_avg_dtype != c_.exp_avg_sq_dtype) {
      warn("exp_avg_sq_dtype", "differs from exp_avg_dtype: a run file has one type for both",
           "the type of exp_avg_dtype is taken");
    }
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
    for (const std::string_view option : kOptionsInEnvironment) {
      if (option == "moe_expert_rank_capacity_factor" && !c_.moe_paged_stash) continue;
      const nlohmann::json value = get(c_, *find_megatron_field(option));
      if (value.is_number()) s.env[std::string(option)] = value.dump();
    }
    if (c_.transformer_impl == "local"_w) {
      s.container = "megatron-local-2026-08";
      warn("transformer_impl",
           "local layers: software.container is the stack without Transformer "
           "Engine that ships");
    }
  }
};

}  // namespace

void import_training(ImportState& state) { TrainingPart(state).read(); }

}  // namespace moecast
