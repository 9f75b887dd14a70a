#pragma once
/// What the sections of the rule table share: questions about a RuleInput (no allocation), names of
/// sources, and groups of knobs that are read together.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "layout/rules.hpp"

namespace moecast::rules {

using In = const RuleInput&;

/// A condition on the effective configuration `c`, the input `in` and its surroundings `at`.
#define WHEN(...)                            \
  [](In in) -> bool {                        \
    [[maybe_unused]] const auto& c = in.c;   \
    [[maybe_unused]] const auto& at = in.at; \
    return static_cast<bool>(__VA_ARGS__);   \
  }

using Broken = bool (*)(In);

inline Rule error(std::string_view id, std::string_view reads, std::string_view condition,
                  std::string_view fix, std::string_view source, Broken broken) {
  return {id, Severity::error, reads, condition, fix, source, broken};
}
inline Rule warning(std::string_view id, std::string_view reads, std::string_view condition,
                    std::string_view fix, std::string_view source, Broken broken) {
  return {id, Severity::warning, reads, condition, fix, source, broken};
}
inline Rule note(std::string_view id, std::string_view reads, std::string_view condition,
                 std::string_view fix, std::string_view source, Broken broken) {
  return {id, Severity::info, reads, condition, fix, source, broken};
}

using Section = std::vector<Rule> (*)();
std::vector<Rule> join(std::initializer_list<Section> sections);

// Sections of the table, in table order.
std::vector<Rule> world_rules();
std::vector<Rule> pipeline_rules();
std::vector<Rule> layout_string_rules();
std::vector<Rule> model_rules();
std::vector<Rule> attention_rules();
std::vector<Rule> router_rules();
std::vector<Rule> overlap_rules();
std::vector<Rule> delayed_wgrad_rules();
std::vector<Rule> dispatcher_rules();
std::vector<Rule> library_rules();
std::vector<Rule> expert_rules();
std::vector<Rule> graph_rules();
std::vector<Rule> graph_capture_rules();
std::vector<Rule> recompute_rules();
std::vector<Rule> offload_rules();
std::vector<Rule> precision_rules();
std::vector<Rule> optimizer_rules();
std::vector<Rule> fsdp_rules();
std::vector<Rule> version_rules();
std::vector<Rule> advice_rules();

inline constexpr auto kLM = Enforcer::megatron_lm;
inline constexpr auto kBridge = Enforcer::bridge;
inline constexpr auto kOwn = Enforcer::moecast;

inline constexpr std::string_view kArguments = "megatron/training/arguments.py validate_args";
inline constexpr std::string_view kParallelState = "megatron/core/parallel_state.py";
inline constexpr std::string_view kModelParallel = "megatron/core/model_parallel_config.py";
inline constexpr std::string_view kTransformerConfig =
    "megatron/core/transformer/transformer_config.py";
inline constexpr std::string_view kTransformerBlock =
    "megatron/core/transformer/transformer_block.py get_num_layers_to_build";
inline constexpr std::string_view kTransformerLayer =
    "megatron/core/transformer/transformer_layer.py";
inline constexpr std::string_view kLayoutString =
    "megatron/core/transformer/pipeline_parallel_layer_layout.py";
inline constexpr std::string_view kSchedules = "megatron/core/pipeline_parallel/schedules.py";
inline constexpr std::string_view kMoeLayer = "megatron/core/transformer/moe/moe_layer.py";
inline constexpr std::string_view kExperts = "megatron/core/transformer/moe/experts.py";
inline constexpr std::string_view kTokenDispatcher =
    "megatron/core/transformer/moe/token_dispatcher.py";
inline constexpr std::string_view kCudaGraphs = "megatron/core/transformer/cuda_graphs.py";
inline constexpr std::string_view kDdp =
    "megatron/core/distributed/distributed_data_parallel_config.py";
inline constexpr std::string_view kOptimizerConfig = "megatron/core/optimizer/optimizer_config.py";
inline constexpr std::string_view kCommOverlap = "megatron/bridge/training/comm_overlap.py";
inline constexpr std::string_view kBridgeConfig = "megatron/bridge/training/config.py";
inline constexpr std::string_view kBridgeGraph = "megatron/bridge/utils/cuda_graph.py";
inline constexpr std::string_view kMixedPrecision = "megatron/bridge/training/mixed_precision.py";
inline constexpr std::string_view kFlexBackend =
    "megatron/bridge/training/flex_dispatcher_backend.py";

// What a microbatch count, a VPP or a dispatch group follows from.
#define READS_DP                                                        \
  "world_size tensor_model_parallel_size pipeline_model_parallel_size " \
  "context_parallel_size tensor_parallel_num_weight_shards"
#define READS_MICROBATCHES READS_DP " micro_batch_size global_batch_size"
#define READS_VPP                                                               \
  "num_virtual_stages_per_pipeline_rank num_layers_per_virtual_pipeline_stage " \
  "pipeline_model_parallel_layout pipeline_model_parallel_size num_layers"
#define READS_DISPATCHER "moe_token_dispatcher_type moe_flex_dispatcher_backend moe_enable_deepep"
#define READS_EP_GROUP \
  "expert_tensor_parallel_size expert_model_parallel_size tensor_model_parallel_size"
#define READS_GRAPH "cuda_graph_impl cuda_graph_modules"
#define READS_ALLOCATOR "env.PYTORCH_CUDA_ALLOC_CONF env.PYTORCH_ALLOC_CONF"
#define READS_RECOMPUTE "recompute_granularity recompute_modules moe_layer_recompute"
#define READS_OFFLOAD "fine_grained_activation_offloading offload_modules"
#define READS_FP8 "fp8_format fp8_recipe"
#define READS_NUMBERS "bf16 fp16"
#define READS_SHARED "moe_shared_expert_overlap moe_shared_expert_intermediate_size"

/// Sizes above this are refused, so that products of three stay exact.
inline constexpr int kLargestSize = 1 << 20;

/// A product that stops at 2^40 instead of overflowing; sizes that large are refused anyway.
inline long product(std::initializer_list<long> factors) {
  constexpr long kMost = 1L << 40;
  long p = 1;
  for (const long f : factors) p = f <= 0 ? 0 : p > kMost / f ? kMost : p * f;
  return p;
}

inline bool moe(In in) { return in.c.num_experts.value_or(0) > 0; }
inline bool shared_experts(In in) {
  return in.c.moe_shared_expert_intermediate_size.value_or(0) > 0;
}
template <typename Bad>
bool any_attention(In in, Bad bad) {
  return std::any_of(in.at.attention.begin(), in.at.attention.end(), bad);
}
inline int etp(In in) { return in.c.expert_tensor_parallel_size.value_or(1); }
inline long ep_group(In in) { return static_cast<long>(etp(in)) * in.c.expert_model_parallel_size; }

inline bool flex(In in) { return in.c.moe_token_dispatcher_type == "flex"_w; }
inline bool backend(In in, Word name) {
  return flex(in) && in.c.moe_flex_dispatcher_backend == name;
}
inline bool deepep(In in) { return backend(in, "deepep"_w); }
inline bool hybridep(In in) { return backend(in, "hybridep"_w); }
inline bool ncclep(In in) { return backend(in, "ncclep"_w); }

inline bool blackwell(In in) { return in.at.compute_capability >= 10.0; }
inline int compute_major(In in) { return static_cast<int>(in.at.compute_capability); }
inline bool fp8(In in) { return static_cast<bool>(in.c.fp8_format); }
inline bool fp4(In in) { return static_cast<bool>(in.c.fp4_format); }
inline bool quantized(In in) { return fp8(in) || fp4(in); }
inline bool recipe(In in, Word name) { return fp8(in) && in.c.fp8_recipe == name; }
inline bool older(long version, long minimum) { return version > 0 && version < minimum; }

inline bool te_graph(In in) { return in.c.cuda_graph_impl == "transformer_engine"_w; }
inline bool full_iteration(In in) { return in.c.cuda_graph_impl == "full_iteration"_w; }
inline bool graphs(In in) { return in.c.cuda_graph_impl != "none"_w; }
/// The module is named in the scope of a captured graph.
inline bool graphed(In in, Word module) {
  return graphs(in) && in.c.cuda_graph_modules.has(module);
}
/// Per-layer graphs with no modules named capture the whole layer.
inline bool whole_layer_graph(In in) {
  return graphs(in) && !full_iteration(in) && in.c.cuda_graph_modules.empty();
}
inline bool drop_and_pad(In in) {
  return in.c.moe_expert_capacity_factor.has_value() && in.c.moe_pad_expert_input_to_capacity;
}

inline bool selective(In in) { return in.c.recompute_granularity == "selective"_w; }
inline bool full_recompute(In in) { return in.c.recompute_granularity == "full"_w; }
inline bool recomputes(In in, Word module) {
  return selective(in) && in.c.recompute_modules.has(module);
}
inline bool fine_grained(In in) { return in.c.fine_grained_activation_offloading; }
inline bool offloads(In in, Word module) {
  return fine_grained(in) && in.c.offload_modules.has(module);
}
inline bool offloads_expert_modules(In in) {
  return offloads(in, "expert_fc1"_w) || offloads(in, "moe_act"_w) ||
         offloads(in, "fused_group_mlp"_w);
}
inline bool layer_offload(In in) { return in.c.cpu_offloading; }
inline bool overlap(In in) { return in.c.overlap_moe_expert_parallel_comm; }
inline bool megatron_fsdp(In in) { return in.c.use_megatron_fsdp; }

/// The weight gradient runs inside a captured graph (megatron/bridge/training/comm_overlap.py):
/// attn is in the scope, or moe_router with shared experts that are not overlapped. Whole-layer
/// capture is not recognised there.
inline bool wgrad_in_graph(In in) {
  return graphs(in) &&
         (graphed(in, "attn"_w) ||
          (graphed(in, "moe_router"_w) && shared_experts(in) && !in.c.moe_shared_expert_overlap));
}

}  // namespace moecast::rules
