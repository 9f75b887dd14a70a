/// What is legal and still worth a word: silent changes, benchmark-only settings, known pitfalls.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kHarness = "Megatron-Bridge scripts/performance/utils/overrides.py";

bool split_model(In in) {
  return in.c.tensor_model_parallel_size > 1 || in.c.context_parallel_size > 1;
}
bool before_blackwell(In in) { return in.at.compute_capability > 0 && !blackwell(in); }
bool connections_wrong(In in) {
  return in.at.max_connections != 1 && before_blackwell(in) && split_model(in) &&
         !megatron_fsdp(in) && !in.c.use_torch_fsdp2 && !overlap(in);
}

std::vector<Rule> connection_rows() {
#define READS_CONNECTIONS                                       \
  "env.CUDA_DEVICE_MAX_CONNECTIONS tensor_model_parallel_size " \
  "context_parallel_size use_megatron_fsdp use_torch_fsdp2 overlap_moe_expert_parallel_comm gpu"
  return {
      error("MAX-CONNECTIONS-LAUNCH", READS_CONNECTIONS,
            "before Blackwell TP or CP > 1 needs CUDA_DEVICE_MAX_CONNECTIONS=1 (unless FSDP or EP "
            "overlap)",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1", kArguments, connections_wrong)
          .by(kLM)
          .logs("Using tensor model parallelism or context parallelism require setting the "
                "environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1"),
      warning(
          "MAX-CONNECTIONS", READS_CONNECTIONS,
          "before Blackwell TP or CP > 1 wants CUDA_DEVICE_MAX_CONNECTIONS=1 (unless FSDP or EP "
          "overlap)",
          "set it to 1", kArguments, WHEN(connections_wrong(in) && at.max_connections > 0))
          .by(kBridge)
          .says([](In in) {
            return fmt::format("CUDA_DEVICE_MAX_CONNECTIONS={} with TP {} CP {}",
                               in.at.max_connections, in.c.tensor_model_parallel_size,
                               in.c.context_parallel_size);
          }),
      warning("MAX-CONNECTIONS-OVERLAP", READS_CONNECTIONS,
              "before Blackwell EP overlap wants many connections and TP or CP wants one: "
              "CUDA_DEVICE_MAX_CONNECTIONS 32 or 1, whichever matters more",
              "measure both values", kArguments,
              WHEN(overlap(in) && before_blackwell(in) && split_model(in) && !at.run_file)),
      warning(
          "MAX-CONNECTIONS-ONE", READS_CONNECTIONS,
          "before Blackwell EP overlap without TP or CP wants CUDA_DEVICE_MAX_CONNECTIONS > 1",
          "set it to 32 with deepep or hybridep, else to 8", kHarness,
          WHEN(overlap(in) && before_blackwell(in) && !split_model(in) && at.max_connections == 1)),
  };
}

std::vector<Rule> warnings() {
  return {
      warning("TP-OVERLAP-IGNORED", "tp_comm_overlap tensor_model_parallel_size sequence_parallel",
              "tp_comm_overlap needs TP > 1 with sequence parallel, else Bridge turns it off",
              "turn comm.tp_comm_overlap off", kCommOverlap,
              WHEN(in.asked.tp_comm_overlap &&
                   (c.tensor_model_parallel_size < 2 || !c.sequence_parallel)))
          .by(kBridge)
          .says([](In in) {
            return fmt::format("tp_comm_overlap has no effect with TP {}{}",
                               in.c.tensor_model_parallel_size,
                               in.c.sequence_parallel ? "" : " without sequence parallel");
          }),
      warning(
          "GRAPH-FRAGMENTATION", READS_GRAPH " " READS_ALLOCATOR,
          "full_iteration graphs run with expandable_segments:True against fragmentation",
          "set "
          "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,graph_capture_record_stream_reuse:True "
          "and NCCL_GRAPH_REGISTER=0",
          "Megatron-Bridge docs/training/cuda-graphs.md",
          WHEN(full_iteration(in) && !at.expandable_segments))
          .says([](In) { return std::string("full_iteration graph without expandable segments"); }),
      warning("GRAPH-STREAM-REUSE",
              READS_GRAPH " overlap_moe_expert_parallel_comm " READS_ALLOCATOR,
              "in a full_iteration graph with EP overlap, rows that cross streams are not reused "
              "before the capture ends unless the allocator follows the graph",
              "add graph_capture_record_stream_reuse:True to PYTORCH_CUDA_ALLOC_CONF",
              "Megatron-LM pull request 4383; PyTorch issue 155398",
              WHEN(full_iteration(in) && overlap(in) && at.captures_without_reuse))
          .says([](In) {
            return std::string(
                "full_iteration graph with EP overlap: every microbatch's exchanged rows stay");
          }),
      warning("FUSED-MLP-FALLBACK",
              "use_transformer_engine_op_fuser expert_tensor_parallel_size " READS_OFFLOAD,
              "the fused grouped MLP needs ETP 1 and no offload of expert_fc1 or moe_act, else it "
              "falls back",
              "set ETP to 1 and offload fused_group_mlp instead", kExperts,
              WHEN(c.use_transformer_engine_op_fuser && moe(in) &&
                   (etp(in) > 1 || offloads(in, "expert_fc1"_w) || offloads(in, "moe_act"_w))))
          .says([](In in) {
            return fmt::format("the fused grouped MLP is not used (ETP {})", etp(in));
          }),
      warning("FLEX-SKIPPED", READS_DISPATCHER " gpu",
              "on a GPU without DeepEP or HybridEP, apply_flex_dispatcher_backend warns and falls "
              "back to alltoall",
              "run on Ampere, Hopper or Blackwell, or set alltoall", kFlexBackend,
              WHEN(moe(in) && flex(in) && at.compute_capability > 0 &&
                   (compute_major(in) < 8 || compute_major(in) > 10)))
          .by(kBridge)
          .logs("falling back to alltoall DeepEP HybridEP not supported skipped")
          .section("perf-expert-parallel-overlap: failure diagnosis"),
      warning("BACKEND-PROOF", READS_DISPATCHER " cuda_graph_impl",
              "a backend or a graph that is configured may still not run",
              "look for the intended kernels and the replay in a trace", "moecast",
              WHEN(!at.run_file && moe(in) && flex(in) && graphs(in)))
          .by(kOwn)
          .section("moe-optimization-workflow: pitfall 8"),
  };
}

std::vector<Rule> notes() {
  return {
      note("FORCE-BALANCE", "moe_router_force_load_balancing",
           "forced load balancing is for benchmarks only",
           "state an imbalance to forecast a real run", "megatron/core/transformer/moe/router.py",
           WHEN(moe(in) && c.moe_router_force_load_balancing))
          .section("moe-optimization-workflow: phase 0, pitfall 7")
          .says([](In) {
            return std::string("routing is balanced by force: throughput is that of a benchmark");
          }),
      note("ROUTER-FP32", "num_experts moe_router_dtype", "32 or more experts: route in fp32",
           "set moe_router_dtype=fp32 in the recipe", kTransformerConfig,
           WHEN(c.num_experts.value_or(0) >= 32 && c.moe_router_dtype != "fp32"_w))
          .logs("Using a large number of experts (e.g. >=32) without fp32 routing")
          .section("moe-optimization-workflow: low precision, router in FP32")
          .says([](In in) {
            return fmt::format("{} experts: keep the router in fp32", *in.c.num_experts);
          }),
      note("GRAPH-WARMUP", "cuda_graph_impl", "the first iterations run eagerly before capture",
           "leave them out of any timing", "megatron/bridge/training/train.py", graphs)
          .section("moe-optimization-workflow: phase 5")
          .says([](In) {
            return std::string("the first cuda_graph_warmup_steps (3) iterations are not graphed");
          }),
      note(
          "EP-OVERLAP-SMALL",
          "overlap_moe_expert_parallel_comm expert_model_parallel_size "
          "moe_token_dispatcher_type world_size",
          "EP overlap rarely pays for EP <= 4 with alltoall on at most two nodes",
          "measure it against none", "Megatron-Bridge docs/training/communication-overlap.md",
          WHEN(overlap(in) && c.expert_model_parallel_size <= 4 &&
               c.moe_token_dispatcher_type == "alltoall"_w && c.world_size <= 2 * at.gpus_per_node))
          .section("perf-expert-parallel-overlap: when to avoid it")
          .says([](In in) {
            return fmt::format("EP overlap with EP {}", in.c.expert_model_parallel_size);
          }),
      note("EXPERT-TP", "expert_tensor_parallel_size expert_model_parallel_size num_experts",
           "for experts, prefer EP to more tensor parallelism", "raise EP and set ETP to 1",
           "moecast", WHEN(moe(in) && etp(in) > 1))
          .by(kOwn)
          .section("moe-optimization-workflow: phase 2"),
      note("RECOMPUTE-FULL-LAST", "recompute_granularity",
           "prefer selective recompute: full recompute only where nothing else fits",
           "try layernorm, moe_act, mlp, shared_experts or mla_up_proj first", "moecast",
           full_recompute)
          .by(kOwn)
          .section("moe-optimization-workflow: phase 1"),
      note("OFFLOAD-LAST", READS_OFFLOAD " cpu_offloading cpu_offloading_num_layers",
           "offload only where recompute and parallelism are not enough",
           "try selective recompute first", "moecast", WHEN(fine_grained(in) || layer_offload(in)))
          .by(kOwn)
          .section("moe-optimization-workflow: phase 1"),
      note("WGRAD-APART", "overlap_moe_expert_parallel_comm delay_wgrad_compute",
           "test EP overlap, shared-expert overlap and delayed weight gradients one by one",
           "measure EP overlap without delay_wgrad_compute too", "moecast",
           WHEN(overlap(in) && c.delay_wgrad_compute))
          .by(kOwn)
          .section("moe-optimization-workflow: phase 4"),
  };
}

std::vector<Rule> order_notes() {
  return {
      note(
          "ONE-CHANGE", "overlap_moe_expert_parallel_comm cuda_graph_impl fp8_format fp4_format",
          "make the model fit and choose its parallelism before overlap, graphs and low precision, "
          "and bring those in one by one",
          "measure each against the run without it", "moecast",
          WHEN(overlap(in) && graphs(in) && quantized(in)))
          .by(kOwn)
          .section("moe-optimization-workflow: pitfall 1"),
      note("HOST-WALL", "gpu cuda_graph_impl",
           "on GB200 and GB300 host and launch overhead shows early",
           "try CUDA graphs of moe_router and moe_preprocess, --manual-gc and CPU affinity",
           "moecast", WHEN(at.grace && moe(in) && !graphs(in)))
          .by(kOwn)
          .section("moe-optimization-workflow: pitfall 2"),
      note("QUANTIZED-MFU", "fp8_format fp4_format",
           "across precisions compare absolute throughput: MFU looks low in FP8",
           "compare step time or tokens/s", "moecast", quantized)
          .by(kOwn)
          .section("moe-optimization-workflow: pitfall 3"),
      note("FOLDING",
           "expert_tensor_parallel_size tensor_model_parallel_size "
           "expert_model_parallel_size num_experts",
           "attention and experts have their own meshes: one TP plan for both costs both",
           "state ETP 1 and raise EP instead", "moecast",
           WHEN(moe(in) && c.tensor_model_parallel_size > 1 &&
                etp(in) == c.tensor_model_parallel_size))
          .by(kOwn)
          .section("moe-optimization-workflow: pitfall 5"),
      note("OVERLAP-UNIONS", "overlap_moe_expert_parallel_comm",
           "sums of kernel times are not exposed time: judge overlap by interval unions",
           "intersect the unions of communication and compute kernels", "moecast", overlap)
          .by(kOwn)
          .section("moe-optimization-workflow: pitfall 6"),
      note("FLEX-AFTER-ALLTOALL", READS_DISPATCHER,
           "bring a model up with alltoall, then compare flex with deepep and hybridep",
           "measure it against alltoall on the same container", "moecast",
           WHEN(moe(in) && flex(in)))
          .by(kOwn)
          .section(
              "moe-optimization-workflow: phase 4; perf-expert-parallel-overlap: quick decision"),
      note("NVFP4-LAST", "fp4_format", "try NVFP4 once BF16 and FP8 are stable",
           "compare step times, not MFU, across precisions", "moecast", fp4)
          .by(kOwn)
          .section("moe-optimization-workflow: low precision, pitfall 3"),
  };
}

}  // namespace

std::vector<Rule> advice_rules() { return join({connection_rows, warnings, notes, order_notes}); }

}  // namespace moecast::rules
