/// Rules of CUDA graphs: implementations, scopes and what goes with them.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr Words kGraphModules{"attn"_w,           "mlp"_w,  "moe"_w, "moe_router"_w,
                              "moe_preprocess"_w, "mamba"_w};
constexpr std::string_view kPhase4 = "moe-optimization-workflow: phase 4, CUDA graphs for MoE";

bool static_moe_shapes(In in) {
  return drop_and_pad(in) || in.c.moe_paged_stash || in.at.static_dispatch;
}
/// Recompute inside a captured part that draws random numbers.
bool random_recompute(In in) {
  const MegatronConfig& c = in.c;
  if (!te_graph(in)) return false;
  const bool whole = whole_layer_graph(in);
  const bool attention = whole || graphed(in, "attn"_w);
  const bool dense = whole || graphed(in, "mlp"_w), experts = whole || graphed(in, "moe"_w);
  return (c.attention_dropout != 0 && recomputes(in, "core_attn"_w) && attention) ||
         (c.hidden_dropout != 0 &&
          ((recomputes(in, "mlp"_w) && dense) || (recomputes(in, "moe"_w) && experts))) ||
         (c.moe_input_jitter_eps && recomputes(in, "moe"_w) &&
          (experts || graphed(in, "moe_router"_w)));
}

/// Bridge looks at the impl as it is stated; Megatron-LM after the modules have changed it.
bool nan_check_broken(In in) {
  if (!in.c.check_for_nan_in_loss_and_grad) return false;
  if (in.at.flavour == Flavour::megatron_lm) return full_iteration(in);
  return in.asked.cuda_graph_impl == "full_iteration"_w ||
         (in.asked.cuda_graph_impl == "local"_w &&
          in.asked.cuda_graph_modules.has("full_iteration"_w));
}

std::vector<Rule> graph_scope_rows() {
  return {
      error("GRAPH-LOCAL", READS_GRAPH,
            "Bridge trains with transformer_engine or full_iteration graphs, not with local ones",
            "set cuda_graph.impl to transformer_engine", kBridgeGraph,
            WHEN(c.cuda_graph_impl == "local"_w))
          .by(kBridge)
          .says([](In) { return std::string("cuda_graph.impl is local"); }),
      error("GRAPH-FULL-SCOPE", READS_GRAPH, "full_iteration graphs take no scope",
            "clear cuda_graph.scope", kTransformerConfig,
            WHEN((full_iteration(in) && !c.cuda_graph_modules.empty()) ||
                 (te_graph(in) && c.cuda_graph_modules.has("full_iteration"_w))))
          .says([](In) { return std::string("full_iteration graph with a scope"); }),
      error("GRAPH-UNKNOWN-MODULE", READS_GRAPH,
            "graph scopes are attn, mlp, moe, moe_router, moe_preprocess and mamba",
            "choose among them", kTransformerConfig,
            WHEN(c.cuda_graph_modules.outside(kGraphModules) &&
                 !c.cuda_graph_modules.has("full_iteration"_w))),
      error("GRAPH-MOE-ROUTER", READS_GRAPH, "scope moe excludes moe_router", "keep one",
            kTransformerConfig, WHEN(graphed(in, "moe"_w) && graphed(in, "moe_router"_w)))
          .says([](In) { return std::string("moe and moe_router are both in the graph scope"); }),
      error("GRAPH-PREPROCESS", READS_GRAPH, "scope moe_preprocess needs moe_router",
            "add moe_router", kTransformerConfig,
            WHEN(graphed(in, "moe_preprocess"_w) && !graphed(in, "moe_router"_w)))
          .logs("moe_preprocess cuda graph is only supported with moe_router cuda graph")
          .section(kPhase4)
          .says([](In) {
            return std::string("moe_preprocess without moe_router in the graph scope");
          }),
      error("GRAPH-MOE-MODEL", READS_GRAPH " num_experts",
            "scopes moe and moe_router need a MoE model", "leave them out", kTransformerConfig,
            WHEN(c.num_experts.value_or(0) < (at.run_file ? 2 : 1) &&
                 (graphed(in, "moe"_w) || graphed(in, "moe_router"_w))))
          .says([](In in) { return fmt::format("{} has no experts to capture", in.at.model); }),
      error("GRAPH-MLP-DENSE", READS_GRAPH " moe_layer_freq num_experts",
            "scope mlp needs a dense layer", "leave mlp out", kTransformerConfig,
            WHEN(graphed(in, "mlp"_w) && moe(in) && !at.has_dense_layer))
          .says([](In in) { return fmt::format("{} has no dense layer", in.at.model); }),
      warning("GRAPH-SCOPE-IGNORED", READS_GRAPH, "a graph scope needs a graph impl",
              "set cuda_graph.impl or clear cuda_graph.scope", kTransformerConfig,
              WHEN(!graphs(in) && !c.cuda_graph_modules.empty()))
          .says([](In) { return std::string("cuda_graph.scope has no effect with impl none"); }),
      error("GRAPH-RNG-TRACKER", READS_GRAPH " te_rng_tracker",
            "CUDA graphs need Transformer Engine's RNG tracker (Megatron-LM turns it on, Bridge "
            "refuses)",
            "set rng.te_rng_tracker=true", "megatron/bridge/models/gpt_provider.py provide",
            WHEN(graphs(in) && c.te_rng_tracker == false))
          .by(kBridge)
          .at(Phase::build)
          .logs("Transformer engine's RNG tracker is required for cudagraphs"),
      error(
          "GRAPH-NAN-CHECK", READS_GRAPH " check_for_nan_in_loss_and_grad fp16 loss_scale",
          "full_iteration graphs need the NaN check off (Megatron-LM turns it off itself for fp16 "
          "with a dynamic loss scale)",
          "pass --no-check-for-nan-in-loss-and-grad; in Bridge "
          "rerun_state_machine.check_for_nan_in_loss=false",
          kArguments, nan_check_broken)
          .logs("--no-check-for-nan-in-loss-and-grad should be set with full_iteration CUDA graph "
                "check_for_nan_in_loss must be disabled when using full_iteration"),
  };
}

std::vector<Rule> graph_saving_rows() {
  return {
      error("GRAPH-FULL-RECOMPUTE", READS_GRAPH " recompute_granularity",
            "full recompute goes only with full_iteration graphs", "use selective recompute",
            kTransformerConfig, WHEN(graphs(in) && !full_iteration(in) && full_recompute(in)))
          .logs("full recompute is only supported with full iteration CUDA graph")
          .section("moe-optimization-workflow: pitfall 4")
          .says([](In) { return std::string("full recompute with per-layer graphs"); }),
      error("GRAPH-MOE-RECOMPUTE", READS_GRAPH " " READS_RECOMPUTE,
            "transformer_engine graphs: recompute module moe excludes scope moe_router",
            "recompute moe_act instead of moe", kTransformerConfig,
            WHEN(te_graph(in) && graphed(in, "moe_router"_w) && recomputes(in, "moe"_w)))
          .says([](In) { return std::string("recompute module moe with moe_router graphed"); }),
      error("GRAPH-RANDOM-RECOMPUTE",
            READS_GRAPH " " READS_RECOMPUTE
                        " attention_dropout hidden_dropout moe_input_jitter_eps",
            "recompute inside a captured part draws no random numbers (dropout, input jitter)",
            "set dropout and jitter to 0, or leave the module out", kTransformerConfig,
            random_recompute),
      warning("GRAPH-LAYERNORM-RECOMPUTE",
              READS_GRAPH " " READS_RECOMPUTE " " READS_SHARED
                          " moe_token_dispatcher_type moe_latent_size",
              "recompute of the pre-MLP norm with scope moe_router is switched off unless "
              "moe_preprocess is in scope with alltoall or latent MoE, and always under "
              "shared-expert overlap",
              "expect no saving from layernorm there", kTransformerLayer,
              WHEN(te_graph(in) && graphed(in, "moe_router"_w) && recomputes(in, "layernorm"_w) &&
                   !(graphed(in, "moe_preprocess"_w) && !c.moe_shared_expert_overlap &&
                     (c.moe_token_dispatcher_type == "alltoall"_w ||
                      c.moe_latent_size.value_or(0) > 0))))
          .says([](In) {
            return std::string("the pre-MLP norm is not recomputed under this graph scope");
          }),
      error("GRAPH-LAYER-OFFLOAD", READS_GRAPH " cpu_offloading cpu_offloading_num_layers",
            "layer offload excludes graphs other than full_iteration", "drop one of the two",
            kTransformerConfig, WHEN(graphs(in) && !full_iteration(in) && layer_offload(in)))
          .says([](In) {
            return std::string("layer-level activation offload with per-layer graphs");
          }),
  };
}

std::vector<Rule> capture_rows() {
  return {
      error("GRAPH-MOE-CAPACITY",
            READS_GRAPH " moe_expert_capacity_factor moe_pad_expert_input_to_capacity "
                        "moe_paged_stash " READS_DISPATCHER,
            "scope moe needs drop-and-pad routing, or transformer_engine graphs of HybridEP with "
            "paged_stash",
            "capture moe_router and moe_preprocess, or set moe.capacity_factor", kTransformerConfig,
            WHEN(graphed(in, "moe"_w) && !drop_and_pad(in) &&
                 !(te_graph(in) && hybridep(in) && c.moe_paged_stash)))
          .logs("moe cuda graph is only supported with drop-padding MoE")
          .section(kPhase4)
          .says(
              [](In) { return std::string("the experts of a dropless model cannot be captured"); }),
      error("GRAPH-PREPROCESS-COPIES",
            READS_GRAPH " moe_token_dispatcher_type moe_expert_capacity_factor "
                        "moe_pad_expert_input_to_capacity moe_router_padding_for_fp8",
            "scope moe_preprocess with alltoall: no capacity factor without padding and no "
            "moe_router_padding_for_fp8 (both copy to the host)",
            "leave moe_preprocess out", kTransformerConfig,
            WHEN(graphed(in, "moe_preprocess"_w) && c.moe_token_dispatcher_type == "alltoall"_w &&
                 ((c.moe_expert_capacity_factor && !c.moe_pad_expert_input_to_capacity) ||
                  c.moe_router_padding_for_fp8))),
      error(
          "GRAPH-STATIC-SHAPES",
          READS_GRAPH " num_experts moe_expert_capacity_factor moe_pad_expert_input_to_capacity "
                      "moe_paged_stash",
          "a graph over whole MoE layers needs static shapes: a capacity factor, paged_stash or "
          "static_dispatch",
          "set moe.capacity_factor or software.features.paged_stash, or capture moe_router and "
          "moe_preprocess only",
          kCudaGraphs,
          WHEN((full_iteration(in) || whole_layer_graph(in)) && moe(in) && !static_moe_shapes(in)))
          .at(Phase::runtime)
          .logs("operation not permitted when stream is capturing "
                "cudaErrorStreamCaptureUnsupported")
          .section("moe-optimization-workflow: phase 4, whole-iteration graphs")
          .says([](In in) {
            return fmt::format(
                "{} graph of a dropless MoE: tokens per expert change from step to step",
                full_iteration(in) ? "full_iteration" : "whole-layer");
          }),
  };
}

std::vector<Rule> capture_memory_rows() {
  return {
      error(
          "GRAPH-OFFLOAD", READS_GRAPH " " READS_OFFLOAD " cuda_graph_warmup_steps",
          "fine-grained offload goes with transformer_engine or full_iteration graphs and at "
          "least one warm-up step; with local graphs only for expert modules outside the scope",
          "use transformer_engine graphs and leave cuda_graph_warmup_steps at 3",
          kTransformerConfig,
          WHEN(
              fine_grained(in) && graphs(in) &&
              (c.cuda_graph_warmup_steps < 1 ||
               (c.cuda_graph_impl == "local"_w &&
                (c.cuda_graph_modules.empty() ||
                 c.offload_modules.outside({"expert_fc1"_w, "moe_act"_w, "fused_group_mlp"_w})))))),
      error("GRAPH-MOE-OFFLOAD", READS_GRAPH " " READS_OFFLOAD,
            "fine-grained offload excludes scope moe", "leave moe out of the scope",
            kTransformerConfig, WHEN(graphed(in, "moe"_w) && fine_grained(in)))
          .says([](In) { return std::string("activation offload with the experts captured"); }),
      error("GRAPH-OFFLOAD-INFLIGHT",
            READS_GRAPH " " READS_OFFLOAD " fine_grained_offloading_max_inflight_offloads",
            "full_iteration graphs with fine-grained offload state max_inflight_offloads >= 0",
            "set fine_grained_offloading_max_inflight_offloads", kTransformerConfig,
            WHEN(fine_grained(in) && full_iteration(in) && !at.run_file &&
                 c.fine_grained_offloading_max_inflight_offloads.value_or(-1) < 0)),
      error("GRAPH-EXPANDABLE", READS_GRAPH " " READS_ALLOCATOR " env.NCCL_GRAPH_REGISTER",
            "transformer_engine graphs with expandable_segments:True need NCCL_GRAPH_REGISTER=0",
            "set software.env.NCCL_GRAPH_REGISTER to 0", kCudaGraphs,
            WHEN(te_graph(in) && at.expandable_segments && !at.nccl_graph_register_off &&
                 at.flavour == Flavour::bridge))
          .at(Phase::runtime)
          .says(
              [](In) { return std::string("expandable_segments without NCCL_GRAPH_REGISTER=0"); }),
      error("GRAPH-EXPANDABLE-LAUNCH", READS_GRAPH " " READS_ALLOCATOR " env.NCCL_GRAPH_REGISTER",
            "per-layer CUDA graphs with expandable_segments:True need NCCL_GRAPH_REGISTER=0",
            "export NCCL_GRAPH_REGISTER=0", kArguments,
            WHEN(graphs(in) && !full_iteration(in) && at.expandable_segments &&
                 !at.nccl_graph_register_off))
          .by(kLM)
          .logs("NCCL_GRAPH_REGISTER=0"),
      error("GRAPH-WEIGHT-SHARDS",
            READS_GRAPH " tensor_parallel_num_weight_shards tensor_model_parallel_size gpu "
                        "env.CUDA_GRAPHS_USE_NODE_PRIORITY",
            "weight shards with graphs on Blackwell need CUDA_GRAPHS_USE_NODE_PRIORITY=1",
            "export CUDA_GRAPHS_USE_NODE_PRIORITY=1", kArguments,
            WHEN(graphs(in) && in.weight_shards > 1 && blackwell(in) && !at.graph_node_priority))
          .by(kLM),
      error("GRAPH-FSDP2", READS_GRAPH " use_megatron_fsdp megatron_fsdp_version",
            "Megatron-FSDP v2 excludes CUDA graphs", "drop one of the two", kBridgeConfig,
            WHEN(graphs(in) && megatron_fsdp(in) && c.megatron_fsdp_version == 2))
          .by(kBridge),
  };
}

}  // namespace

std::vector<Rule> graph_rules() { return join({graph_scope_rows, graph_saving_rows}); }

std::vector<Rule> graph_capture_rules() { return join({capture_rows, capture_memory_rows}); }

}  // namespace moecast::rules
