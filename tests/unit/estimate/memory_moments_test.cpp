// When the peak stands: step 1, steady state, captured graphs, and the optimizer step.
#include <algorithm>

#include "catch.hpp"

#include "estimate/evaluate.hpp"
#include "estimate/memory_peak.hpp"
#include "problem_of.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

RankMemory rank_0(const Problem& p, const Layout& l) {
  Estimate e;
  Evaluator(p).evaluate(l, Depth::exact, &e);
  return e.ranks.front();
}

Layout ep8() {
  Layout l;
  l.ep = 8;
  return l;
}

double shard(const Problem& p, const Layout& l) {
  const RankParams r = must(make_mesh_tables(p, l)).params.front();
  return r.dense / p.world + r.expert * l.ep / p.world;
}

}  // namespace

TEST_CASE("step 1 peaks lower by the Adam moments, which are created at its end") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 16);
  const RankMemory r = rank_0(p, ep8());
  CHECK_THAT((r.peak - r.peak_first_step).value, WithinRel(8 * shard(p, ep8()), 1e-9));
}

TEST_CASE("BF16 gradients put a floor under the peak: their fp32 copy at the optimizer step") {
  // full recomputation leaves few activations: static + 4 bytes per element of the shard stands
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 8);
  Layout l = ep8();
  l.grad_dtype = DType::bf16;
  l.recompute_granularity = RecomputeGranularity::full;
  l.recompute_method = RecomputeMethod::uniform;
  l.recompute_num_layers = 1;
  const RankMemory r = rank_0(p, l);
  CHECK(r.moment == "optimizer step");
  const double kept = 48 * 4096.0 * (5 * 128 + 4 * 2048);  // see the last test
  CHECK_THAT(r.activations.value, WithinRel(kept + 4 * shard(p, l), 1e-9));
  CHECK(r.peak_first_step == r.peak);
  l.precision_aware_optimizer = true;  // reads BF16 gradients as they are when the master is small
  l.master_dtype = DType::fp16;
  CHECK(rank_0(p, l).moment != "optimizer step");
}

TEST_CASE("captured activations stay in graph pools during the optimizer step") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 8);
  Layout l = ep8();
  l.grad_dtype = DType::bf16;
  l.recompute_granularity = RecomputeGranularity::selective;
  l.recompute_modules.add(RecomputeModule::moe);
  const RankMemory eager = rank_0(p, l);
  l.cuda_graph_impl = CudaGraphImpl::transformer_engine;
  l.cuda_graph_scope.add(GraphModule::attn);
  const RankMemory graphed = rank_0(p, l);
  CHECK(graphed.peak_before_graphs == eager.peak);
  // 48 layers of attention: norm in and out, q k v, q k before their norms, output, log-sum-exp,
  // rstd
  const double n = 4096, h = 2048, q = 32 * 128, kv = 4 * 128;
  const double layer = n * (4 * h + 4 + 2 * (q + 2 * kv) + 2 * (q + kv) + 2 * q + 4 * 32);
  CHECK(graphed.moment == "optimizer step");
  CHECK_THAT(graphed.activations.value, WithinRel(48 * layer + 4 * shard(p, l), 1e-9));
}

TEST_CASE("a full-iteration graph shares nothing with the optimizer step") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-b200", 8);
  Layout l = ep8();
  l.grad_dtype = DType::bf16;
  const RankMemory eager = rank_0(p, l);
  l.cuda_graph_impl = CudaGraphImpl::full_iteration;
  CHECK_THAT((rank_0(p, l).peak - eager.peak).value, WithinRel(4 * shard(p, l), 1e-9));
}

TEST_CASE(
    "a captured iteration keeps rows that crossed streams, unless the allocator follows the "
    "graph") {
  // 2 microbatches on each of 8 ranks; recorded on an H200 (bench/memory_probe/graphs.py)
  Run run = run_of("qwen3-30b-a3b", "dgx-b200", 8);
  run.global_batch_size = 16;
  Problem p = problem_of(run);
  Layout l = ep8();
  l.dispatcher = Dispatcher::hybridep;
  l.overlap_moe_expert_parallel_comm = true;
  l.cuda_graph_impl = CudaGraphImpl::full_iteration;
  CHECK(rank_0(p, l).cuda_graph.value == 0);  // the recipes' allocator
  p.features.captures_without_reuse = true;
  CHECK_THAT(rank_0(p, l).cuda_graph.value, WithinRel(4.0 * 2 * 2048 * 4096 * 8 * 48 * 2, 1e-12));
  l.overlap_moe_expert_parallel_comm = false;
  CHECK(rank_0(p, l).cuda_graph.value == 0);
}

TEST_CASE("both names of the allocator's settings are read, the older one first") {
  const char* const newer = "PYTORCH_ALLOC_CONF";
  const char* const older = "PYTORCH_CUDA_ALLOC_CONF";
  Run run = run_of("qwen3-30b-a3b", "dgx-h100", 8);
  run.software.env[newer] = "expandable_segments:False";
  const double by_default = problem_of(run).fragmentation;
  CHECK(problem_of(run).features.captures_without_reuse);
  run.software.env[older] = "expandable_segments:True,graph_capture_record_stream_reuse:True";
  CHECK(problem_of(run).fragmentation < by_default);
  CHECK_FALSE(problem_of(run).features.captures_without_reuse);
}

TEST_CASE("graphs of the alltoall preprocessing keep every layer's permuted rows") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 16);
  Layout l = ep8();
  l.cuda_graph_impl = CudaGraphImpl::transformer_engine;
  l.cuda_graph_scope.add(GraphModule::moe_router).add(GraphModule::moe_preprocess);
  CHECK(rank_0(p, l).cuda_graph == bytes(48.0 * 2 * 2048 * 4096 * 8));
  l.dispatcher = Dispatcher::hybridep;
  CHECK(rank_0(p, l).cuda_graph.value == 0);
}

TEST_CASE("every MTP depth's loss keeps its logits until its backward") {
  Problem p = problem_of("deepseek-v3", "gb200-nvl72", 64);
  REQUIRE(p.model.mtp_num_layers == 1);
  const double logits = 4096.0 * 129280;
  CHECK_THAT(head_memory(p, shard_key({})).mtp, WithinRel(2 * logits + 12 * 4096, 1e-12));
  p.features.te_cross_entropy = false;  // an fp32 softmax instead
  CHECK_THAT(head_memory(p, shard_key({})).mtp, WithinRel(4 * logits, 1e-12));
}

TEST_CASE("gated delta net and Mamba layers keep what their kernels save") {
  // Qwen3.5-35B-A3B: 16 key and 32 value heads of 128. Bytes per token, without the norm's input:
  // published savings of recomputing the block are 93.7 and 101.8 kB per token and layer (30 layers
  // of 4096 tokens; Megatron-Bridge tuning log of 2026-08), so the kept tensors must be near
  const Problem q = problem_of("qwen3.5-35b-a3b", "dgx-h100", 16);
  double gdn = 0;
  for (const SavedTensor& t : layer_memory(q, shard_key({}), q.classes.front()).saved) {
    if (t.name == "mlp norm input") break;
    if (t.name != "attention norm input") gdn += t.bytes / 4096;
  }
  CHECK(gdn > 0.9 * 93.7e3);
  CHECK(gdn < 101.8e3);
  // Nemotron-3-Nano: d_inner 4096, 8 groups of 128 states, 64 heads, hidden 2688
  const Problem n = problem_of("nemotron-3-nano-30b-a3b", "dgx-h100", 16);
  const double mamba = layer_memory(n, shard_key({}), n.classes.front()).stored(0);
  CHECK_THAT(mamba / 4096, WithinRel(4.0 * 2688 + 4 + 2 * (2 * 4096 + 2048 + 64) + 6 * 4096, 1e-9));
}

TEST_CASE("buckets end at multiples of lcm(shards, 128)") {
  CHECK(bucket_padding(1000, 1, 1) == 0);    // nothing is sharded
  CHECK(bucket_padding(1000, 8, 1) == 24);   // 1024
  CHECK(bucket_padding(1000, 6, 1) == 152);  // lcm(6, 128) = 384, 3 x 384 = 1152
  CHECK(bucket_padding(2560, 64, 2) == 0);   // 2 x 1280
  CHECK(bucket_padding(2562, 64, 2) == 2 * (1408 - 1281));
}

TEST_CASE("FP8 attention keeps one byte per element of q, k, v and its output") {
  Run run = run_of("qwen3-30b-a3b", "dgx-b200", 8);
  run.layout.precision = Precision::mxfp8;
  const auto attention = [](const Problem& p, const Run& r) {
    double sum = 0;
    for (const SavedTensor& t : layer_memory(p, shard_key(r.layout), p.classes.front()).saved) {
      if (t.name == "q, k, v" || t.name.rfind("attention output", 0) == 0) sum += t.bytes;
    }
    return sum / 4096;
  };
  const double q = 32 * 128, kv = 4 * 128;
  CHECK_THAT(attention(problem_of(run), run),
             WithinRel(2 * (q + 2 * kv) + 2 * q + q * 33 / 32, 1e-12));
  run.software.features["fp8_attention"] = true;
  CHECK_THAT(attention(problem_of(run), run), WithinRel(q + 2 * kv + q, 1e-12));
}

TEST_CASE(
    "the local stack's moments are what a PyTorch program of the same blocks was recorded at") {
  // bench/memory_probe/samples/h200.json, shape qwen3: one sequence of 4096, h 2048, 128 experts of
  // 768, top 8; PyTorch 2.11 on an H200. Bytes by the verdict table of bench/memory_probe.
  Run run = run_of("qwen3-30b-a3b", "dgx-h200", 8);
  run.software.container = "megatron-local-2026-08";
  Problem p = problem_of(run);
  const double N = 4096, h = 2048, R = N * 8, fe = 768, e = 128, V = 151936;
  const LayerMemory grouped = layer_memory(p, shard_key({}), p.classes.front());
  const double dy = 2 * h * N, w2 = e * h * fe;
  CHECK_THAT(grouped.backward.bytes,
             WithinRel(std::max({dy + 2 * h * R + 2 * fe * R + 4 * w2, dy + 4 * fe * R + 4 * R,
                                 dy - 2 * fe * R + 2 * h * R + 8 * w2}),
                       1e-12));
  CHECK_THAT(grouped.forward_combine, WithinRel(3 * 2 * h * R + 4 * R, 1e-12));
  CHECK_THAT(grouped.leftover, WithinRel(2 * 2 * h * N, 1e-12));
  CHECK_THAT(grouped.attributes, WithinRel(5 * e * N, 1e-12));
  ShardKey exchange;
  exchange.ep = 8;
  CHECK_THAT(layer_memory(p, exchange, p.classes.front()).forward_combine,
             WithinRel(4 * 2 * h * R + dy + 4 * R, 1e-12));
  CHECK_THAT(head_memory(p, shard_key({})).out_layer,
             WithinRel(2 * N * V + 2 * h * N + 2 * h * V, 1e-12));
  p.features.unfused_kernels = true;
  CHECK_THAT(head_memory(p, shard_key({})).loss, WithinRel(6 * N * V, 1e-12));
  p.features.sequential_experts = true;  // one expert of 256 rows at a time
  CHECK_THAT(layer_memory(p, shard_key({}), p.classes.front()).backward.bytes,
             WithinRel(dy + 2 * h * R + std::max(2 * h * R, 2 * fe * R / e + 2 * h * fe), 1e-12));
}

TEST_CASE("a recomputed MoE block leaves its input and the input's gradient until it runs again") {
  // Megatron-Core runs on H200 that differ in full recomputation of 4 layers: 256 MiB at rest
  // at two sequences (2 x 2hn per layer)
  Run run = run_of("qwen3-30b-a3b", "dgx-h200", 1);
  run.software.container = "megatron-local-2026-08";
  run.model_overrides = {{"num_hidden_layers", 4}};
  const Problem p = problem_of(run);
  Layout l;
  const double before = rank_0(p, l).at_rest.value;
  l.recompute_granularity = RecomputeGranularity::full;
  l.recompute_method = RecomputeMethod::uniform;
  l.recompute_num_layers = 1;
  const double left = 4 * 2 * 2.0 * 2048 * 4096;
  CHECK_THAT(rank_0(p, l).at_rest.value - before, WithinRel(left, 1e-9));
  l.recompute_granularity = RecomputeGranularity::selective;
  l.recompute_modules.add(RecomputeModule::moe_act);  // its backward holds no probabilities
  CHECK(rank_0(p, l).at_rest.value == before);
}
