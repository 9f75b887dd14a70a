// When the peak stands: step 1, steady state, captured graphs, and the optimizer step.
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
  const RankParams r = rank_params(p, l, must(make_mesh_tables(p, l)).plan, 0);
  return r.dense / p.world + r.expert / (p.world / l.ep);
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
  CHECK_THAT(r.activations.value, WithinRel(4 * shard(p, l), 1e-9));
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
