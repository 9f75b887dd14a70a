#include "layout/mutations.hpp"
#include "layout/megatron_config.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast {
namespace {

using namespace rules;
using C = MegatronConfig&;
using At = const Surroundings&;

constexpr int kBridgeBucket = 134'217'728;

long data_parallel(const MegatronConfig& c) {
  const long model = product(
      {c.tensor_model_parallel_size, c.pipeline_model_parallel_size, c.context_parallel_size});
  return model > 0 && c.world_size % model == 0 ? c.world_size / model : 0;
}
bool interleaved(const MegatronConfig& c) {
  return c.pipeline_model_parallel_size > 1 &&
         c.num_virtual_stages_per_pipeline_rank.value_or(1) > 1;
}

/// Bridge applies its comm_overlap block before the layout string becomes a VPP.
void bridge_p2p(C c, At) {
  const bool both = interleaved(c);
  if (!c.overlap_p2p_comm) c.overlap_p2p_comm = both;
  if (!c.batch_p2p_comm) c.batch_p2p_comm = c.pipeline_model_parallel_size > 1 && !both;
}
void bridge_gradients(C c, At) {
  const bool sharded = c.use_distributed_optimizer && data_parallel(c) > 1;
  if (sharded && !c.ddp_bucket_size) c.ddp_bucket_size = kBridgeBucket;
  if (!c.overlap_grad_reduce) c.overlap_grad_reduce = sharded;
  if (!c.overlap_param_gather) c.overlap_param_gather = sharded;
  if (!c.align_param_gather) c.align_param_gather = sharded && interleaved(c);
}
void bridge_tp_overlap(C c, At) {
  if (c.tensor_model_parallel_size < 2 || !c.sequence_parallel) c.tp_comm_overlap = false;
}
void vpp_from_layout(C c, At at) {
  if (!at.layout.given || at.layout.stages == 0 || c.pipeline_model_parallel_size < 1) return;
  const int stages = at.layout.stages / c.pipeline_model_parallel_size;
  if (!c.num_virtual_stages_per_pipeline_rank && stages > 1)
    c.num_virtual_stages_per_pipeline_rank = stages;
}
void vpp_from_layers(C c, At) {
  const int per_stage = c.num_layers_per_virtual_pipeline_stage.value_or(0);
  if (per_stage < 1 || c.pipeline_model_parallel_size < 1) return;
  const long layers = static_cast<long>(c.num_layers) + c.account_for_embedding_in_pipeline_split +
                      c.account_for_loss_in_pipeline_split;
  const long stages = layers / c.pipeline_model_parallel_size / per_stage;
  if (stages > 0) c.num_virtual_stages_per_pipeline_rank = static_cast<int>(stages);
}
void vpp_of_one(C c, At) {
  if (c.num_virtual_stages_per_pipeline_rank == 1) c.num_virtual_stages_per_pipeline_rank.reset();
}
void launcher_p2p(C c, At) {
  const bool both = c.num_virtual_stages_per_pipeline_rank.has_value();
  if (!both) c.align_param_gather = false;
  if (!both) c.overlap_p2p_comm = false;
  if (!c.overlap_p2p_comm) c.overlap_p2p_comm = true;
  if (!c.batch_p2p_comm) c.batch_p2p_comm = !*c.overlap_p2p_comm;
}
void expert_tp_from_tp(C c, At) {
  if (!c.expert_tensor_parallel_size) c.expert_tensor_parallel_size = c.tensor_model_parallel_size;
}
void expert_tp_of_one(C c, At) {
  if (!c.expert_tensor_parallel_size && c.expert_model_parallel_size > 1)
    c.expert_tensor_parallel_size = 1;
}
void sequence_parallel_off(C c, At) {
  if (c.tensor_model_parallel_size == 1) c.sequence_parallel = false;
}
void shapes(C c, At at) {
  if (!c.ffn_hidden_size && c.hidden_size > 0) {
    const long wide = 4L * c.hidden_size;
    const bool narrowed = at.flavour == Flavour::megatron_lm && c.swiglu;
    c.ffn_hidden_size = static_cast<int>(
        std::min<long>(narrowed ? wide * 2 / 3 / 64 * 64 : wide, std::numeric_limits<int>::max()));
  }
  if (!c.kv_channels && c.num_attention_heads > 0)
    c.kv_channels = c.hidden_size / c.num_attention_heads;
  if (!c.num_query_groups) c.num_query_groups = c.num_attention_heads;
  if (!c.moe_ffn_hidden_size && c.num_experts) c.moe_ffn_hidden_size = c.ffn_hidden_size;
}
void group_size(C c, At) {
  if (!c.microbatch_group_size_per_vp_stage)
    c.microbatch_group_size_per_vp_stage = c.pipeline_model_parallel_size;
}
void default_module(C c, At) {
  if (!c.recompute_modules.given) c.recompute_modules.add("core_attn"_w);
}
void moe_layer_recompute(C c, At) {
  if (!c.moe_layer_recompute || c.recompute_granularity == "full"_w) return;
  c.recompute_granularity = "selective"_w;
  if (!c.recompute_modules.has("moe"_w)) c.recompute_modules.add("moe"_w);
}
void grouped_tensor(C c, At) {
  if (c.use_transformer_engine_op_fuser && c.moe_grouped_gemm) c.moe_use_grouped_tensor = true;
}
void dispatcher_sms(C c, At) {
  if (c.moe_flex_dispatcher_num_sms) return;
  c.moe_flex_dispatcher_num_sms =
      c.moe_deepep_num_sms ? c.moe_deepep_num_sms : c.moe_hybridep_num_sms;
}
void enable_deepep(C c, At) {
  if (c.moe_enable_deepep && c.moe_token_dispatcher_type == "flex"_w &&
      c.moe_flex_dispatcher_backend != "hybridep"_w)
    c.moe_flex_dispatcher_backend = "deepep"_w;
}
void no_backend(C c, At) {
  if (c.moe_token_dispatcher_type == "flex"_w && !c.moe_flex_dispatcher_backend)
    c.moe_token_dispatcher_type = "alltoall"_w;
}
void router_padding(C c, At) {
  if (c.moe_router_padding_for_fp8) c.moe_router_padding_for_quantization = true;
}
void negative_capacity(C c, At) {
  if (c.moe_expert_capacity_factor.value_or(0) < 0) c.moe_expert_capacity_factor.reset();
}
void graph_modules(C c, At) {
  Words& modules = c.cuda_graph_modules;
  if (modules.has("full_iteration"_w) && c.cuda_graph_impl != "transformer_engine"_w) {
    c.cuda_graph_impl = "full_iteration"_w;
    modules.remove("full_iteration"_w);
  }
  if (modules.has("full"_w)) modules.remove("full"_w);
  if (c.cuda_graph_impl != "local"_w) return;
  if (modules.has("moe_router"_w) != modules.has("moe_preprocess"_w)) {
    modules.add("moe_router"_w);
    modules.add("moe_preprocess"_w);
  }
}
void rng_tracker(C c, At) {
  if (c.cuda_graph_impl != "none"_w && c.transformer_impl == "transformer_engine"_w &&
      !c.te_rng_tracker)
    c.te_rng_tracker = true;
}
void uneven_dispatch(C c, At) {
  if (c.moe_token_dispatcher_type == "flex"_w && c.moe_flex_dispatcher_backend == "hybridep"_w &&
      c.cuda_graph_impl == "none"_w)
    c.moe_hybridep_pad_uneven_dispatch_inputs = true;
}
void gradients_in_fp32(C c, At) {
  if (c.bf16 && !c.grad_reduce_in_bf16 && c.main_grads_dtype == "fp32"_w)
    c.accumulate_allreduce_grads_in_fp32 = true;
}
void qkv_bias(C c, At) {
  if (c.add_bias_linear) c.add_qkv_bias = true;
}
void layer_offloading(C c, At) {
  if (c.cpu_offloading_num_layers > 0) c.cpu_offloading = true;
}
bool emerging(Word optimizer) { return optimizer != "adam"_w && optimizer != "sgd"_w; }
void layer_wise_optimizer(C c, At) {
  if (!emerging(c.optimizer) || !c.use_distributed_optimizer) return;
  c.use_layer_wise_distributed_optimizer = true;
  c.use_distributed_optimizer = false;
}
void dynamic_loss_scale(C c, At) {
  if (c.fp16 && !c.loss_scale) c.check_for_nan_in_loss_and_grad = false;
}
void batch_from_dp(C c, At) {
  if (!c.global_batch_size) {
    c.global_batch_size = static_cast<int>(std::min<long>(
        product({c.micro_batch_size, data_parallel(c)}), std::numeric_limits<int>::max()));
  }
}
void eval_batch(C c, At) {
  if (!c.eval_global_batch_size) c.eval_global_batch_size = c.global_batch_size;
}
void fsdp_buffers(C c, At) {
  if (c.use_megatron_fsdp) c.reuse_grad_buf_for_mxfp8_param_ag = false;
}

constexpr std::string_view kBridgeModel = "megatron/bridge/models/transformer_config.py finalize";

std::vector<Mutation> size_mutations() {
  return {
      {"SET-VPP-FROM-LAYERS", "num_layers_per_virtual_pipeline_stage num_layers",
       "num_virtual_stages_per_pipeline_rank", "VPP = layers / PP / layers per virtual stage",
       kArguments, Enforcer::core, vpp_from_layers},
      {"SET-P2P-OVERLAP", READS_VPP, "overlap_p2p_comm batch_p2p_comm",
       "pipeline exchanges overlap with PP > 1 and a stated VPP > 1, else they are batched; what "
       "you set wins. A layout string counts only with VPP stated beside it",
       kCommOverlap, kBridge, bridge_p2p},
      {"SET-GRADIENT-OVERLAP", READS_DP " use_distributed_optimizer",
       "ddp_bucket_size overlap_grad_reduce overlap_param_gather align_param_gather",
       "with the distributed optimizer and DP > 1: buckets of 134217728 elements, gradient reduce "
       "and parameter gather overlapped; with DP 1 all off",
       kCommOverlap, kBridge, bridge_gradients},
      {"SET-TP-OVERLAP-OFF", "tensor_model_parallel_size sequence_parallel", "tp_comm_overlap",
       "tp_comm_overlap is turned off with TP 1 or without sequence parallel", kCommOverlap,
       kBridge, bridge_tp_overlap},
      {"SET-VPP-FROM-LAYOUT", "pipeline_model_parallel_layout pipeline_model_parallel_size",
       "num_virtual_stages_per_pipeline_rank", "VPP = stages of the layout string / PP",
       kTransformerConfig, Enforcer::core, vpp_from_layout},
      {"SET-VPP-NONE", "num_virtual_stages_per_pipeline_rank",
       "num_virtual_stages_per_pipeline_rank", "VPP 1 means no virtual pipeline", kArguments, kLM,
       vpp_of_one},
      {"SET-P2P-WITHOUT-VPP", READS_VPP, "overlap_p2p_comm batch_p2p_comm align_param_gather",
       "without a virtual pipeline, pipeline exchanges do not overlap and parameter gathers are "
       "not aligned",
       kArguments, kLM, launcher_p2p},
      {"SET-ETP-ONE", "expert_tensor_parallel_size expert_model_parallel_size",
       "expert_tensor_parallel_size", "ETP is 1 when it is not stated and EP > 1", kBridgeModel,
       kBridge, expert_tp_of_one},
      {"SET-ETP-TP", "expert_tensor_parallel_size tensor_model_parallel_size",
       "expert_tensor_parallel_size", "ETP is TP when it is not stated", kModelParallel,
       Enforcer::core, expert_tp_from_tp},
      {"SET-SP-OFF", "tensor_model_parallel_size", "sequence_parallel",
       "sequence parallel is turned off with TP 1", kArguments, Enforcer::core,
       sequence_parallel_off},
      {"SET-SHAPES", "hidden_size num_attention_heads ffn_hidden_size swiglu",
       "ffn_hidden_size kv_channels num_query_groups moe_ffn_hidden_size",
       "widths that are not stated: FFN 4h (Megatron-LM with SwiGLU 8h/3 rounded down to 64), head "
       "h / heads, query groups = heads, expert FFN = FFN",
       kTransformerConfig, Enforcer::core, shapes},
      {"SET-GROUP-SIZE", "pipeline_model_parallel_size", "microbatch_group_size_per_vp_stage",
       "the interleaved schedule groups PP microbatches", kModelParallel, Enforcer::core,
       group_size},
  };
}

std::vector<Mutation> option_mutations() {
  return {
      {"SET-MOE-LAYER-RECOMPUTE", "moe_layer_recompute", "recompute_granularity recompute_modules",
       "the deprecated moe_layer_recompute means selective recompute of moe", kTransformerConfig,
       Enforcer::core, moe_layer_recompute},
      {"SET-RECOMPUTE-MODULES", "recompute_modules", "recompute_modules",
       "recompute modules are [core_attn] when none are stated", kTransformerConfig, Enforcer::core,
       default_module},
      {"SET-GROUPED-TENSOR", "use_transformer_engine_op_fuser moe_grouped_gemm",
       "moe_use_grouped_tensor", "the op fuser with grouped GEMM uses grouped tensors",
       kTransformerConfig, Enforcer::core, grouped_tensor},
      {"SET-DISPATCHER-SMS", "moe_deepep_num_sms moe_hybridep_num_sms",
       "moe_flex_dispatcher_num_sms",
       "the deprecated moe_deepep_num_sms / moe_hybridep_num_sms set moe_flex_dispatcher_num_sms",
       kTransformerConfig, Enforcer::core, dispatcher_sms},
      {"SET-ENABLE-DEEPEP", "moe_enable_deepep", "moe_flex_dispatcher_backend",
       "the deprecated moe_enable_deepep turns any backend but hybridep into deepep",
       kTransformerConfig, Enforcer::core, enable_deepep},
      {"SET-NO-BACKEND", "moe_token_dispatcher_type moe_flex_dispatcher_backend",
       "moe_token_dispatcher_type", "flex without a backend falls back to alltoall", kFlexBackend,
       kBridge, no_backend},
      {"SET-ROUTER-PADDING", "moe_router_padding_for_fp8", "moe_router_padding_for_quantization",
       "the deprecated moe_router_padding_for_fp8 means moe_router_padding_for_quantization",
       kTransformerConfig, Enforcer::core, router_padding},
      {"SET-CAPACITY-NONE", "moe_expert_capacity_factor", "moe_expert_capacity_factor",
       "a negative capacity factor means none", kTransformerConfig, Enforcer::core,
       negative_capacity},
      {"SET-GRAPH-MODULES", "cuda_graph_modules cuda_graph_impl",
       "cuda_graph_modules cuda_graph_impl",
       "module full_iteration switches impl to full_iteration, full means the whole layer; with "
       "impl local, moe_router and moe_preprocess come together",
       kTransformerConfig, Enforcer::core, graph_modules},
      {"SET-RNG-TRACKER", "cuda_graph_impl", "te_rng_tracker",
       "CUDA graphs turn Transformer Engine's RNG tracker on", kArguments, kLM, rng_tracker},
      {"SET-UNEVEN-DISPATCH", READS_DISPATCHER " cuda_graph_impl",
       "moe_hybridep_pad_uneven_dispatch_inputs",
       "HybridEP without graphs pads uneven inputs: one all-reduce and one host sync per dispatch",
       kBridgeModel, kBridge, uneven_dispatch},
      {"SET-FP32-GRADIENTS", "bf16 grad_reduce_in_bf16 main_grads_dtype",
       "accumulate_allreduce_grads_in_fp32",
       "bf16 training accumulates and reduces gradients in fp32", kArguments, kLM,
       gradients_in_fp32},
      {"SET-QKV-BIAS", "add_bias_linear", "add_qkv_bias",
       "linear biases include the QKV projection's", kArguments, kLM, qkv_bias},
      {"SET-LAYER-OFFLOAD", "cpu_offloading_num_layers", "cpu_offloading",
       "cpu_offloading_num_layers > 0 turns layer offload on", kArguments, Enforcer::core,
       layer_offloading},
      {"SET-LAYER-WISE-OPTIMIZER", "optimizer use_distributed_optimizer",
       "use_distributed_optimizer use_layer_wise_distributed_optimizer",
       "emerging optimizers (muon) replace the distributed optimizer by the layer-wise one",
       kArguments, kLM, layer_wise_optimizer},
      {"SET-NAN-CHECK-OFF", "fp16 loss_scale", "check_for_nan_in_loss_and_grad",
       "fp16 with a dynamic loss scale turns the NaN check off", kArguments, kLM,
       dynamic_loss_scale},
      {"SET-BATCH", READS_DP " micro_batch_size", "global_batch_size",
       "the global batch is micro batch * DP when it is not stated", kArguments, Enforcer::core,
       batch_from_dp},
      {"SET-EVAL-BATCH", "global_batch_size", "eval_global_batch_size",
       "the evaluation batch is the global batch when it is not stated", kArguments, Enforcer::core,
       eval_batch},
      {"SET-FSDP-BUFFERS", "use_megatron_fsdp", "reuse_grad_buf_for_mxfp8_param_ag",
       "Megatron-FSDP does not reuse gradient buffers for MXFP8 parameters", kBridgeConfig, kBridge,
       fsdp_buffers},
  };
}

}  // namespace

const std::vector<Mutation>& mutation_table() {
  static const std::vector<Mutation> table = [] {
    std::vector<Mutation> all = size_mutations();
    for (const Mutation& m : option_mutations()) all.push_back(m);
    return all;
  }();
  return table;
}

namespace {

const std::vector<const Mutation*>& mutations_for(Flavour flavour) {
  static const auto split = [] {
    std::vector<const Mutation*> of[2];
    for (const Mutation& m : mutation_table()) {
      if (m.enforcer != kBridge) of[0].push_back(&m);
      if (m.enforcer != kLM) of[1].push_back(&m);
    }
    return std::pair{of[0], of[1]};
  }();
  return flavour == Flavour::bridge ? split.second : split.first;
}

std::vector<const MegatronField*> fields_of(std::string_view names) {
  std::vector<const MegatronField*> fields;
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    if (const auto* field = find_megatron_field(names.substr(0, end))) fields.push_back(field);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return fields;
}

}  // namespace

void mutate(MegatronConfig& config, const Surroundings& at) {
  for (const Mutation* m : mutations_for(at.flavour)) m->apply(config, at);
}

std::vector<Finding> mutations_of(MegatronConfig config, const Surroundings& at) {
  std::vector<Finding> findings;
  for (const Mutation* m : mutations_for(at.flavour)) {
    const MegatronConfig before = config;
    m->apply(config, at);
    std::string changes;
    std::vector<std::string> keys;
    for (const MegatronField* field : fields_of(m->writes)) {
      const auto old = get(before, *field), now = get(config, *field);
      if (old == now) continue;
      changes += fmt::format("{}{} {} -> {}", changes.empty() ? "" : ", ", field->name, old.dump(),
                             now.dump());
      keys.emplace_back(field->run_key.empty() ? field->name : field->run_key);
    }
    if (changes.empty()) continue;
    findings.push_back({std::string(m->id), Severity::mutation, std::move(keys),
                        fmt::format("{} ({})", changes, m->what), "",
                        std::string(to_string(m->enforcer))});
  }
  return findings;
}

}  // namespace moecast
