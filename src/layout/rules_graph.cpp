/// Rules of CUDA graphs.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kScope = "cuda_graph.scope";
constexpr std::string_view kImpl = "cuda_graph.impl";
constexpr std::string_view kBridgeGraph = "megatron/bridge/utils/cuda_graph.py";

bool static_moe_shapes(In in) {
  return drop_and_pad(in) || feature(in, "paged_stash") || feature(in, "static_dispatch");
}

std::vector<Rule> scope_rows() {
  return {
      error(
          "GRAPH-LOCAL", {kImpl},
          "Bridge trains with transformer_engine or full_iteration graphs, not with local ones",
          "set cuda_graph.impl to transformer_engine", kBridgeGraph,
          [](In in) { return in.layout.cuda_graph_impl == CudaGraphImpl::local; },
          [](In) { return std::string("cuda_graph.impl is local"); }, kBridge),
      error(
          "GRAPH-FULL-SCOPE", {kImpl, kScope}, "full_iteration graphs take no scope",
          "clear cuda_graph.scope", kTransformerConfig,
          [](In in) { return full_iteration(in) && !in.layout.cuda_graph_scope.empty(); },
          [](In) { return std::string("full_iteration graph with a scope"); }),
      error(
          "GRAPH-MOE-ROUTER", {kScope}, "scope moe excludes moe_router", "keep one",
          kTransformerConfig,
          [](In in) {
            return graphed(in, GraphModule::moe) && graphed(in, GraphModule::moe_router);
          },
          [](In) { return std::string("moe and moe_router are both in the graph scope"); }),
      error(
          "GRAPH-PREPROCESS", {kScope}, "scope moe_preprocess needs moe_router", "add moe_router",
          kTransformerConfig,
          [](In in) {
            return graphed(in, GraphModule::moe_preprocess) &&
                   !graphed(in, GraphModule::moe_router);
          },
          [](In) { return std::string("moe_preprocess without moe_router in the graph scope"); }),
      error(
          "GRAPH-MOE-MODEL", {kScope, "model"}, "scopes moe and moe_router need a MoE model",
          "leave them out", kTransformerConfig,
          [](In in) {
            return in.model.moe.num_moe_experts < 2 &&
                   (graphed(in, GraphModule::moe) || graphed(in, GraphModule::moe_router));
          },
          [](In in) { return fmt::format("{} has no experts to capture", in.model.name); }),
      error(
          "GRAPH-MLP-DENSE", {kScope, "model"}, "scope mlp needs a dense layer", "leave mlp out",
          kTransformerConfig,
          [](In in) {
            return graphed(in, GraphModule::mlp) && moe(in) && !has_ffn(in, FfnKind::dense);
          },
          [](In in) { return fmt::format("{} has no dense layer", in.model.name); }),
      warning(
          "GRAPH-SCOPE-IGNORED", {kImpl, kScope}, "a graph scope needs a graph impl",
          "set cuda_graph.impl or clear cuda_graph.scope", kTransformerConfig,
          [](In in) { return !graphs(in) && !in.layout.cuda_graph_scope.empty(); },
          [](In) { return std::string("cuda_graph.scope has no effect with impl none"); }),
  };
}

std::vector<Rule> capture_rows() {
  return {
      error(
          "GRAPH-MOE-CAPACITY", {kScope, "moe.capacity_factor", "software.features"},
          "scope moe needs drop-and-pad routing, or transformer_engine graphs of HybridEP with "
          "paged_stash",
          "capture moe_router and moe_preprocess, or set moe.capacity_factor", kTransformerConfig,
          [](In in) {
            return graphed(in, GraphModule::moe) && !drop_and_pad(in) &&
                   !(te_graph(in) && in.layout.dispatcher == Dispatcher::hybridep &&
                     feature(in, "paged_stash"));
          },
          [](In) { return std::string("the experts of a dropless model cannot be captured"); }),
      runtime_error(
          "GRAPH-STATIC-SHAPES", {kImpl, "moe.capacity_factor", "software.features"},
          "a graph over whole MoE layers needs static shapes: a capacity factor, paged_stash or "
          "static_dispatch",
          "set moe.capacity_factor or software.features.paged_stash, or capture moe_router and "
          "moe_preprocess only",
          "megatron/core/transformer/cuda_graphs.py",
          [](In in) {
            return (full_iteration(in) || whole_layer_graph(in)) && moe(in) &&
                   !static_moe_shapes(in);
          },
          [](In in) {
            return fmt::format(
                "{} graph of a dropless MoE: tokens per expert change from step to step",
                full_iteration(in) ? "full_iteration" : "whole-layer");
          }),
  };
}

std::vector<Rule> memory_saving_rows() {
  return {
      error(
          "GRAPH-FULL-RECOMPUTE", {kImpl, "recompute.granularity"},
          "full recompute goes only with full_iteration graphs", "use selective recompute",
          kTransformerConfig,
          [](In in) { return graphs(in) && !full_iteration(in) && full_recompute(in); },
          [](In) { return std::string("full recompute with per-layer graphs"); }),
      error(
          "GRAPH-MOE-RECOMPUTE", {kScope, "recompute.modules"},
          "transformer_engine graphs: recompute module moe excludes scope moe_router",
          "recompute moe_act instead of moe", kTransformerConfig,
          [](In in) {
            return te_graph(in) && graphed(in, GraphModule::moe_router) &&
                   recomputes(in, RecomputeModule::moe);
          },
          [](In) { return std::string("recompute module moe with moe_router graphed"); }),
      warning(
          "GRAPH-LAYERNORM-RECOMPUTE", {kScope, "recompute.modules"},
          "recompute of the pre-MLP norm with scope moe_router is switched off unless "
          "moe_preprocess "
          "is in "
          "scope with alltoall or latent MoE, and always under shared-expert overlap",
          "expect no saving from layernorm there", "megatron/core/transformer/transformer_layer.py",
          [](In in) {
            const bool kept = graphed(in, GraphModule::moe_preprocess) &&
                              (in.layout.dispatcher == Dispatcher::alltoall ||
                               in.model.moe.moe_latent_size > 0) &&
                              !in.layout.moe_shared_expert_overlap;
            return te_graph(in) && graphed(in, GraphModule::moe_router) &&
                   recomputes(in, RecomputeModule::layernorm) && !kept;
          },
          [](In) {
            return std::string("the pre-MLP norm is not recomputed under this graph scope");
          }),
      error(
          "GRAPH-LAYER-OFFLOAD", {kImpl, "offload.cpu_offloading_num_layers"},
          "layer offload excludes graphs other than full_iteration", "drop one of the two",
          kTransformerConfig,
          [](In in) {
            return graphs(in) && !full_iteration(in) && in.layout.cpu_offloading_num_layers > 0;
          },
          [](In) { return std::string("layer-level activation offload with per-layer graphs"); }),
      error(
          "GRAPH-MOE-OFFLOAD", {kScope, "offload.activation_modules"},
          "fine-grained offload excludes scope moe", "leave moe out of the scope",
          kTransformerConfig,
          [](In in) { return graphed(in, GraphModule::moe) && !in.layout.offload_modules.empty(); },
          [](In) { return std::string("activation offload with the experts captured"); }),
      runtime_error(
          "GRAPH-EXPANDABLE", {kImpl, "software.env"},
          "transformer_engine graphs with expandable_segments:True need NCCL_GRAPH_REGISTER=0",
          "set software.env.NCCL_GRAPH_REGISTER to 0", "megatron/core/transformer/cuda_graphs.py",
          [](In in) {
            return te_graph(in) && env(in, "NCCL_GRAPH_REGISTER") != "0" &&
                   env(in, "PYTORCH_CUDA_ALLOC_CONF").find("expandable_segments:True") !=
                       std::string_view::npos;
          },
          [](In) { return std::string("expandable_segments without NCCL_GRAPH_REGISTER=0"); }),
  };
}

}  // namespace

std::vector<Rule> graph_rules() { return join({scope_rows, capture_rows, memory_saving_rows}); }

}  // namespace moecast::rules
