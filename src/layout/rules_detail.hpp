#pragma once
/// What the sections of the rule table share: questions about a RuleInput (no allocation) and the
/// names of sources and keys.
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layout/rules.hpp"

namespace moecast::rules {

using In = const RuleInput&;

using Keys = std::vector<std::string_view>;
using Broken = bool (*)(In);
using Message = std::string (*)(In);

// Rows: what must hold, the fix, where it is enforced.
inline Rule error(std::string_view id, Keys keys, std::string_view condition, std::string_view fix,
                  std::string_view source, Broken broken, Message message,
                  std::string_view applies = "") {
  return {id,      Severity::error, std::move(keys), condition, fix,
          applies, source,          false,           broken,    message};
}
inline Rule runtime_error(std::string_view id, Keys keys, std::string_view condition,
                          std::string_view fix, std::string_view source, Broken broken,
                          Message message) {
  return {id, Severity::error, std::move(keys), condition, fix, "", source, true, broken, message};
}
inline Rule warning(std::string_view id, Keys keys, std::string_view condition,
                    std::string_view fix, std::string_view source, Broken broken, Message message,
                    std::string_view applies = "") {
  return {
      id,     Severity::warning, std::move(keys), condition, fix, applies, source, false, broken,
      message};
}
inline Rule note(std::string_view id, Keys keys, std::string_view condition, std::string_view fix,
                 std::string_view source, Broken broken, Message message) {
  return {id, Severity::info, std::move(keys), condition, fix, "", source, false, broken, message};
}

using Section = std::vector<Rule> (*)();
std::vector<Rule> join(std::initializer_list<Section> sections);

// Sections of the table, in table order. A rule set of another flavour is another section.
std::vector<Rule> mesh_rules();
std::vector<Rule> model_rules();
std::vector<Rule> overlap_rules();
std::vector<Rule> dispatcher_rules();
std::vector<Rule> graph_rules();
std::vector<Rule> recompute_rules();
std::vector<Rule> offload_rules();
std::vector<Rule> precision_rules();
std::vector<Rule> version_rules();
std::vector<Rule> advice_rules();

inline constexpr std::string_view kBridge = "megatron-bridge";
inline constexpr std::string_view kParallelState = "megatron/core/parallel_state.py";
inline constexpr std::string_view kTransformerConfig =
    "megatron/core/transformer/transformer_config.py";
inline constexpr std::string_view kSchedules = "megatron/core/pipeline_parallel/schedules.py";
inline constexpr std::string_view kMoeLayer = "megatron/core/transformer/moe/moe_layer.py";
inline constexpr std::string_view kTokenDispatcher =
    "megatron/core/transformer/moe/token_dispatcher.py";
inline constexpr std::string_view kArguments = "megatron/training/arguments.py";
inline constexpr std::string_view kCommOverlap = "megatron/bridge/training/comm_overlap.py";
inline constexpr std::string_view kBridgeConfig = "megatron/bridge/training/config.py";
inline constexpr std::string_view kFlexBackend =
    "megatron/bridge/training/flex_dispatcher_backend.py";

/// Sizes above this are refused, so that products of three stay exact.
inline constexpr int kLargestSize = 1 << 20;

inline long attention_size(In in) {
  return static_cast<long>(in.layout.tp) * in.layout.pp * in.layout.cp;
}
inline long expert_size(In in) {
  return static_cast<long>(in.layout.etp) * in.layout.ep * in.layout.pp;
}
inline long ep_group(In in) { return static_cast<long>(in.layout.etp) * in.layout.ep; }
/// 0 where the world does not divide.
inline long data_parallel(In in) {
  return in.gpus % attention_size(in) == 0 ? in.gpus / attention_size(in) : 0;
}
/// Microbatches per step; 0 where the batch does not divide (another rule says so).
inline long microbatches(In in) {
  const long per_step = in.layout.micro_batch_size * data_parallel(in);
  return per_step > 0 && in.global_batch_size % per_step == 0 ? in.global_batch_size / per_step : 0;
}
inline long num_layers(In in) { return static_cast<long>(in.model.layers.size()); }
/// Chunks per pipeline rank: stated, or what the layout string holds.
int effective_vpp(In in);

inline bool moe(In in) { return in.model.moe.num_moe_experts > 0; }
inline bool shared_experts(In in) { return in.model.moe.moe_shared_expert_intermediate_size > 0; }
bool has_ffn(In in, FfnKind kind);
bool has_mixer(In in, MixerKind kind);
inline bool drop_and_pad(In in) { return in.run.capacity_factor > 0.0; }

/// software.features.NAME, false when not stated.
bool feature(In in, std::string_view name);
/// software.env.NAME, empty when not stated.
std::string_view env(In in, std::string_view name);

inline bool blackwell(In in) { return in.system.gpu.compute_capability >= 10.0; }
inline int compute_major(In in) { return static_cast<int>(in.system.gpu.compute_capability); }
inline bool quantized(In in) { return in.layout.precision != Precision::bf16; }
inline bool flex(In in) {
  return in.layout.dispatcher == Dispatcher::deepep || in.layout.dispatcher == Dispatcher::hybridep;
}

inline bool te_graph(In in) {
  return in.layout.cuda_graph_impl == CudaGraphImpl::transformer_engine;
}
inline bool full_iteration(In in) {
  return in.layout.cuda_graph_impl == CudaGraphImpl::full_iteration;
}
inline bool graphs(In in) { return in.layout.cuda_graph_impl != CudaGraphImpl::none; }
/// The module is named in the scope of a captured graph.
inline bool graphed(In in, GraphModule m) {
  return graphs(in) && in.layout.cuda_graph_scope.has(m);
}
/// Per-layer graphs with no modules named capture the whole layer.
inline bool whole_layer_graph(In in) {
  return graphs(in) && !full_iteration(in) && in.layout.cuda_graph_scope.empty();
}

inline bool selective(In in) {
  return in.layout.recompute_granularity == RecomputeGranularity::selective;
}
inline bool full_recompute(In in) {
  return in.layout.recompute_granularity == RecomputeGranularity::full;
}
inline bool recomputes(In in, RecomputeModule m) {
  return selective(in) && in.layout.recompute_modules.has(m);
}
inline bool offloads(In in, OffloadModule m) { return in.layout.offload_modules.has(m); }
inline bool offloads_expert_modules(In in) {
  return offloads(in, OffloadModule::expert_fc1) || offloads(in, OffloadModule::moe_act) ||
         offloads(in, OffloadModule::fused_group_mlp);
}

/// The weight gradient runs inside a captured graph (megatron/bridge/training/comm_overlap.py):
/// attn is in the scope, or moe_router with shared experts that are not overlapped. Whole-layer
/// capture is not recognised there.
inline bool wgrad_in_graph(In in) {
  return te_graph(in) && (graphed(in, GraphModule::attn) ||
                          (graphed(in, GraphModule::moe_router) && shared_experts(in) &&
                           !in.layout.moe_shared_expert_overlap));
}

}  // namespace moecast::rules
