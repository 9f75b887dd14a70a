/// What is legal and still worth a word: silent changes, benchmark-only settings, known pitfalls.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

std::vector<Rule> warnings() {
  return {
      warning(
          "TP-OVERLAP-IGNORED", {"comm.tp_comm_overlap", "layout.tp", "layout.sequence_parallel"},
          "tp_comm_overlap needs TP > 1 with sequence parallel, else Bridge turns it off",
          "turn comm.tp_comm_overlap off", kCommOverlap,
          [](In in) { return in.layout.tp_comm_overlap && (in.layout.tp < 2 || !in.layout.sp()); },
          [](In in) {
            return fmt::format("tp_comm_overlap has no effect with TP {}{}", in.layout.tp,
                               in.layout.sp() ? "" : " without sequence parallel");
          }),
      warning(
          "LAYOUT-VPP-UNSTATED", {"layout.pipeline_model_parallel_layout", "layout.vpp"},
          "a layout string with several chunks per rank states VPP as well",
          "state layout.virtual_pipeline_model_parallel_size", kCommOverlap,
          [](In in) { return in.layout.vpp == 1 && effective_vpp(in) > 1; },
          [](In in) {
            return fmt::format(
                "the string means VPP {}, but Bridge sees none stated and does not overlap "
                "pipeline communication",
                effective_vpp(in));
          },
          kBridge),
      warning(
          "MAX-CONNECTIONS", {"software.env", "layout.tp", "layout.cp"},
          "before Blackwell TP or CP > 1 wants CUDA_DEVICE_MAX_CONNECTIONS=1 (unless FSDP or EP "
          "overlap)",
          "set it to 1", kArguments,
          [](In in) {
            const std::string_view value = env(in, "CUDA_DEVICE_MAX_CONNECTIONS");
            return !value.empty() && value != "1" && !blackwell(in) &&
                   (in.layout.tp > 1 || in.layout.cp > 1) && in.layout.fsdp == FsdpSharding::none &&
                   !in.layout.overlap_moe_expert_parallel_comm;
          },
          [](In in) {
            return fmt::format("CUDA_DEVICE_MAX_CONNECTIONS={} with TP {} CP {}",
                               env(in, "CUDA_DEVICE_MAX_CONNECTIONS"), in.layout.tp, in.layout.cp);
          }),
      warning(
          "GRAPH-FRAGMENTATION", {"cuda_graph.impl", "software.env"},
          "full_iteration graphs run with expandable_segments:True against fragmentation",
          "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and NCCL_GRAPH_REGISTER=0",
          "Megatron-Bridge docs/training/cuda-graphs.md",
          [](In in) {
            return full_iteration(in) &&
                   env(in, "PYTORCH_CUDA_ALLOC_CONF").find("expandable_segments:True") ==
                       std::string_view::npos;
          },
          [](In) { return std::string("full_iteration graph without expandable segments"); }),
      warning(
          "FUSED-MLP-FALLBACK", {"software.features", "layout.etp", "offload.activation_modules"},
          "the fused grouped MLP needs ETP 1 and no offload of expert_fc1 or moe_act, else it "
          "falls "
          "back",
          "set ETP to 1 and offload fused_group_mlp instead",
          "megatron/core/transformer/moe/experts.py",
          [](In in) {
            return (in.layout.etp > 1 || offloads(in, OffloadModule::expert_fc1) ||
                    offloads(in, OffloadModule::moe_act)) &&
                   feature(in, "fused_grouped_mlp");
          },
          [](In in) {
            return fmt::format("the fused grouped MLP is not used (ETP {})", in.layout.etp);
          }),
  };
}

std::vector<Rule> notes() {
  return {
      note(
          "FORCE-BALANCE", {"moe.routing"}, "forced load balancing is for benchmarks only",
          "state an imbalance to forecast a real run", "megatron/core/transformer/moe/router.py",
          [](In in) { return moe(in) && in.run.routing.kind == Routing::Kind::force_balance; },
          [](In) {
            return std::string("routing is balanced by force: throughput is that of a benchmark");
          }),
      note(
          "ROUTER-FP32", {"model", "software.features"}, "32 or more experts: route in fp32",
          "set moe_router_dtype=fp32 in the recipe", kTransformerConfig,
          [](In in) {
            return in.model.moe.num_moe_experts >= 32 && !feature(in, "router_dtype_fp32");
          },
          [](In in) {
            return fmt::format("{} experts: keep the router in fp32", in.model.moe.num_moe_experts);
          }),
      note(
          "GRAPH-WARMUP", {"cuda_graph.impl"}, "the first iterations run eagerly before capture",
          "leave them out of any timing", "megatron/bridge/training/train.py",
          [](In in) { return graphs(in); },
          [](In) {
            return std::string("the first cuda_graph_warmup_steps (3) iterations are not graphed");
          }),
      note(
          "EP-OVERLAP-SMALL", {"moe.overlap_moe_expert_parallel_comm", "layout.ep"},
          "EP overlap rarely pays for EP <= 4 with alltoall on at most two nodes",
          "measure it against none", "Megatron-Bridge docs/training/communication-overlap.md",
          [](In in) {
            return in.layout.overlap_moe_expert_parallel_comm && in.layout.ep <= 4 &&
                   in.layout.dispatcher == Dispatcher::alltoall &&
                   in.gpus <= 2 * in.system.gpus_per_node;
          },
          [](In in) { return fmt::format("EP overlap with EP {}", in.layout.ep); }),
  };
}

}  // namespace

std::vector<Rule> advice_rules() { return join({warnings, notes}); }

}  // namespace moecast::rules
