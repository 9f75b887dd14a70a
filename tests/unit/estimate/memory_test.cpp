// Bytes of a rank against counts by hand and measured slopes.
#include <algorithm>
#include <array>
#include <cstdint>

#include "catch.hpp"
#include "estimate/evaluate.hpp"
#include "estimate/layer_memory.hpp"
#include "estimate/rank_state.hpp"
#include "layout/pipeline_plan.hpp"
#include "problem_of.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

constexpr double kMib = 1024 * 1024;

RankParams params_of(const Problem& p, const Layout& l, int rank = 0) {
  return rank_params(p, l, must(plan_pipeline(p.model, l, "", p.seq_length)), rank);
}

/// The first layer class with experts.
const LayerKind& moe_layer(const Problem& p) {
  return *std::find_if(p.classes.begin(), p.classes.end(),
                       [](const LayerKind& k) { return k.ffn == FfnKind::moe; });
}

double stored(const Problem& p, const Layout& l, std::uint16_t recompute = 0) {
  return layer_memory(p, shard_key(l), moe_layer(p)).stored(recompute);
}

/// What recomputing the whole MoE block drops: router and routed experts (models without shared
/// experts).
double routed(const Problem& p, const Layout& l) {
  return stored(p, l) - stored(p, l, mask(RecomputeModule::moe));
}

Layout layout_of(int tp, int ep, int etp = 1) {
  Layout l;
  l.tp = tp;
  l.ep = ep;
  l.etp = etp;
  return l;
}

std::vector<RankMemory> ranks_of(const Problem& p, const Layout& l) {
  Estimate e;
  Evaluator(p).evaluate(l, Depth::exact, &e);
  return e.ranks;
}

}  // namespace

TEST_CASE("Qwen3-30B-A3B on EP 8 holds 5.165e9 parameters, Mixtral-8x7B 7.243e9") {
  // per layer: qkv 2048 (32 + 8) 128, proj 4096 x 2048, q and k norm 2 x 128, norms 2 x 2048,
  // router 2048 x 128, experts 16 x 3 x 2048 x 768
  const double qwen_dense =
      48.0 * (10485760 + 8388608 + 256 + 4096 + 262144) + 2 * 151936.0 * 2048 + 2048;
  const double qwen_expert = 48.0 * 16 * 3 * 2048 * 768;
  const RankParams qwen = params_of(problem_of("qwen3-30b-a3b", "dgx-h100", 8), layout_of(1, 8));
  CHECK(qwen.dense == qwen_dense);
  CHECK(qwen.expert == qwen_expert);
  CHECK_THAT(qwen.total(), WithinRel(5.16e9, 0.01));
  // per layer: qkv 4096 x 48 x 128, proj 4096 x 4096, norms 2 x 4096, router 4096 x 8, one expert 3
  // x 4096 x 14336
  const double mixtral =
      32.0 * (25165824 + 16777216 + 8192 + 32768 + 176160768) + 2 * 32000.0 * 4096 + 4096;
  const RankParams mix = params_of(problem_of("mixtral-8x7b", "dgx-h100", 8), layout_of(1, 8));
  CHECK(mix.total() == mixtral);
  CHECK_THAT(mix.total(), WithinRel(7.24e9, 0.01));
}

TEST_CASE("the vocabulary is padded to 128 per tensor parallel rank") {
  // Qwen3: 151936 = 1187 x 128, at TP 2 padded to 152064
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 8);
  CHECK(params_of(p, layout_of(1, 8)).embedding == 151936.0 * 2048);
  CHECK(params_of(p, layout_of(2, 4)).embedding == 152064.0 / 2 * 2048);
}

TEST_CASE("TransformerEngine caches one dummy weight gradient per distinct shape") {
  // qkv 5120 x 2048, proj 2048 x 4096, fc1 1536 x 2048, fc2 2048 x 768, output layer 151936 x 2048
  const double shapes = 5120.0 * 2048 + 2048 * 4096 + 1536 * 2048 + 2048 * 768 + 151936.0 * 2048;
  Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 8);
  CHECK(params_of(p, layout_of(1, 8)).dummy_wgrad == shapes);
  p.features.transformer_engine = false;
  CHECK(params_of(p, layout_of(1, 8)).dummy_wgrad == 0);
}

TEST_CASE("BF16 with fp32 gradients takes 18 bytes per parameter, sharded 6 + 12 / D") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 32);
  Layout l = layout_of(1, 8);
  const RankParams params = params_of(p, l);
  const auto bytes = [&] {
    const RankState s = rank_state(p, l, params, 0);
    return s.weights + s.gradients + s.optimizer;
  };
  l.distributed_optimizer = false;
  CHECK_THAT(bytes(), WithinRel(18 * params.total(), 1e-12));
  l.distributed_optimizer = true;  // dense over DP 32, experts over EDP 4
  CHECK_THAT(bytes(),
             WithinRel(6 * params.total() + 12 * (params.dense / 32 + params.expert / 4), 1e-12));
  l.grad_dtype = DType::bf16;
  CHECK_THAT(bytes(),
             WithinRel(4 * params.total() + 12 * (params.dense / 32 + params.expert / 4), 1e-12));
  CHECK_THAT(rank_state(p, l, params, 0).optimizer_step,
             WithinRel(4 * (params.dense / 32 + params.expert / 4), 1e-12));
}

TEST_CASE(
    "FP8 weights are made from BF16 copies of their masters, all of one optimizer at a time") {
  // the optimizer step of Llama 70B on TP 4, PP 4, DP 2: 2 B x (80 / 4 layers x 855.6 M / 4) / 2
  const Problem p = problem_of("llama3-70b", "dgx-h100", 32);
  Layout l = layout_of(4, 1);
  l.pp = 4;
  l.grad_dtype = DType::bf16;
  const RankParams params = params_of(p, l);
  const double shard = params.dense / 2;
  const auto step = [&] { return rank_state(p, l, params, 0).optimizer_step; };
  const double layer = 8192.0 * (2 * 8192 + 2 * 1024 + 3 * 28672);
  l.precision = Precision::fp8_tensorwise;
  CHECK_THAT(step(), WithinRel(4 * shard + 2 * 20 * layer / 4 / 2, 1e-12));
  for (const Precision as_it_is : {Precision::bf16, Precision::mxfp8, Precision::fp8_blockwise}) {
    l.precision = as_it_is;  // no FP8 parameters, or through the gradient buffer
    CHECK_THAT(step(), WithinRel(4 * shard, 1e-12));
  }
  l.precision = Precision::mxfp8;
  l.fsdp = FsdpSharding::optim_grads_params;  // shards no gradient buffer that could hold them
  CHECK_THAT(step(), WithinRel(4 * shard + 2 * 20 * layer / 4 / 2, 1e-12));
  const Problem moe = problem_of("qwen3-30b-a3b", "dgx-h100", 32);
  Layout experts = layout_of(1, 8);
  experts.precision = Precision::fp8_tensorwise;
  const RankParams held = params_of(moe, experts);  // dense over DP 32, experts over EDP 4
  CHECK_THAT(rank_state(moe, experts, held, 0).optimizer_step,
             WithinRel(2 * std::max(held.dense_linear / 32, held.expert / 4), 1e-12));
}

TEST_CASE("gathered MXFP8 weights are two copies of a byte and their scales, under FSDP too") {
  const Problem p = problem_of("qwen3-30b-a3b", "gb200-nvl72", 32);
  Layout l = layout_of(1, 8);
  l.precision = Precision::mxfp8;
  for (const FsdpSharding fsdp : {FsdpSharding::none, FsdpSharding::optim_grads_params}) {
    l.fsdp = fsdp;
    CHECK_THAT(linear_weight_bytes(p, l), WithinRel(2 * (1 + 1.0 / 32), 1e-12));
  }
}

TEST_CASE("optimizer offload moves the moments: 8 bytes per sharded parameter, 16 on the host") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 32);
  Layout l = layout_of(1, 8);
  const RankParams params = params_of(p, l);
  const double shard = params.dense / 32 + params.expert / 4;
  const double before = rank_state(p, l, params, 0).optimizer;
  l.optimizer_offload_fraction = 0.5;
  const RankState s = rank_state(p, l, params, 0);
  CHECK_THAT(before - s.optimizer, WithinRel(8 * 0.5 * shard, 1e-12));
  CHECK_THAT(s.host, WithinRel(16 * 0.5 * shard, 1e-12));
}

TEST_CASE("EP does not change the activations of balanced routed experts") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 64);
  for (const int ep : {2, 8, 32}) CHECK(stored(p, layout_of(1, ep)) == stored(p, layout_of(1, 1)));
}

TEST_CASE(
    "TP 2 with expert TP 1 halves the routed activations, expert TP 2 keeps their inputs whole") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 64);
  CHECK_THAT(routed(p, layout_of(2, 8)), WithinRel(0.5 * routed(p, layout_of(1, 8)), 1e-12));
  CHECK(routed(p, layout_of(2, 8, 2)) > routed(p, layout_of(2, 8)));
  // twice the rows of width 2048, the same rows x ffn share: more by 2 x 2048 + 4 bytes for each of
  // n k rows, n = 2048, k = 8
  CHECK_THAT(routed(p, layout_of(2, 8, 2)) - routed(p, layout_of(2, 8)),
             WithinRel(2048.0 * 8 * (2 * 2048 + 4), 1e-12));
}

TEST_CASE("a layer of Qwen3-30B-A3B keeps what was measured on the local stack") {
  // two-layer differences of Megatron-Core runs on H200 without TransformerEngine, one sequence of
  // 4096: 490.35 MiB
  Run run = run_of("qwen3-30b-a3b", "dgx-h200", 8);
  run.software.container = "megatron-local-2026-08";
  CHECK_THAT(stored(problem_of(run), layout_of(1, 1)) / kMib, WithinRel(490.35, 1e-3));
}

TEST_CASE("a layer of Llama3-8B keeps what was measured on the local stack") {
  Run run = run_of("llama3-8b", "dgx-h200", 8);  // measured the same way: 588.5 MiB
  run.software.container = "megatron-local-2026-08";
  const Problem p = problem_of(run);
  CHECK_THAT(layer_memory(p, shard_key({}), p.classes.front()).stored(0) / kMib,
             WithinRel(588.5, 1e-3));
}

TEST_CASE("recomputed modules drop exactly what they wrap") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 64);
  const Layout l = layout_of(1, 8);
  const double rows = 4096.0 * 8;
  CHECK_THAT(stored(p, l) - stored(p, l, mask(RecomputeModule::moe_act)),
             WithinRel(2 * 768 * rows, 1e-12));
  CHECK_THAT(stored(p, l) - stored(p, l, mask(RecomputeModule::layernorm)),
             WithinRel(2.0 * 2048 * 4096 + 4 * 4096, 1e-12));  // pre-MLP norm: output and rstd
  const Problem deepseek = problem_of("deepseek-v3", "dgx-h100", 64);
  const double up = 2.0 * 4096 * 128 * (2 * 192 + 128);  // q, k of 192 and v of 128 for 128 heads
  CHECK_THAT(stored(deepseek, l) - stored(deepseek, l, mask(RecomputeModule::mla_up_proj)),
             WithinRel(up, 1e-12));
}

TEST_CASE("logits and their gradient share storage under TransformerEngine's loss") {
  Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 8);
  const double logits = 4096 * 151936.0;
  CHECK_THAT(head_memory(p, shard_key({})).loss, WithinRel(2 * logits + 12 * 4096, 1e-12));
  p.features.te_cross_entropy = false;
  CHECK_THAT(head_memory(p, shard_key({})).loss, WithinRel(10 * logits, 1e-12));
}

TEST_CASE("workspaces: cuBLAS, grouped GEMM, gather buffer, and the previous input gradient") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 8);
  const RankParams none;
  const auto bytes = [&](const Layout& l, int rank) {
    return workspace_terms(p, l, make_dims(p, shard_key(l)), none, rank).total();
  };
  CHECK(bytes(layout_of(1, 8), 0) == (64 + 128) * kMib);
  CHECK(bytes(layout_of(2, 8), 0) == (64 + 128) * kMib + 2.0 * 2048 * 4096);          // 2 h N
  CHECK(bytes(layout_of(1, 8), 1) - bytes(layout_of(1, 8), 0) == 2.0 * 2048 * 4096);  // 2 h n
}

TEST_CASE("DeepEP and HybridEP buffers match the sizes of their sources") {
  // hidden 7168, 4096 tokens, 20 SMs; facts: DeepEP EP 8 320 MiB, EP 16 360 + 80 MiB; HybridEP EP
  // 64 in one domain 3.80 GiB
  const Problem p = problem_of("deepseek-v3", "dgx-h100", 64);
  const auto bytes = [](const Problem& problem, Dispatcher d, int ep) {
    Layout l = layout_of(1, ep);
    l.dispatcher = d;
    return dispatcher_terms(problem, shard_key(l), make_dims(problem, shard_key(l))).total();
  };
  CHECK_THAT(bytes(p, Dispatcher::deepep, 8) / kMib, WithinRel(320, 0.01));
  CHECK_THAT(bytes(p, Dispatcher::deepep, 16) / kMib, WithinRel(440, 0.01));
  CHECK_THAT(bytes(p, Dispatcher::hybridep, 64) / kBytesPerGib, WithinRel(3.59 + 1.22, 0.01));
  const Problem rack = problem_of("deepseek-v3", "gb200-nvl72", 64);
  CHECK_THAT(bytes(rack, Dispatcher::hybridep, 64) / kBytesPerGib, WithinRel(3.80, 0.01));
  CHECK(bytes(p, Dispatcher::alltoall, 8) == 0);
}

TEST_CASE(
    "the peak is the sum of its parts, and the first rank of a pipeline holds most activations") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 32);
  Layout l = layout_of(1, 8);
  l.pp = 4;
  const std::vector<RankMemory> ranks = ranks_of(p, l);
  REQUIRE(ranks.size() == 4);
  for (const RankMemory& r : ranks) {
    const Bytes sum = r.weights + r.gradients + r.optimizer + r.activations + r.dispatcher +
                      r.cuda_graph + r.workspace;
    CHECK_THAT(r.peak.value, WithinRel(sum.value, 1e-12));
    CHECK_THAT(r.peak_reserved.value,
               WithinRel(reserved_bytes(p, must(make_mesh_tables(p, l)), r.peak.value), 1e-12));
  }
  CHECK(ranks[0].activations > ranks[1].activations);
  CHECK(ranks[1].activations > ranks[2].activations);
  // neighbours in the middle differ by one microbatch of 12 layers and nothing else
  CHECK_THAT((ranks[1].activations - ranks[2].activations).value,
             WithinRel(12 * stored(p, l), 1e-9));
}

TEST_CASE("a few microbatches show every in-flight count of many") {
  Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 8);
  const std::vector<std::array<int, 4>> shapes = {
      {2, 3, 2, 64}, {4, 2, 6, 100}, {8, 2, 8, 96}, {8, 6, 11, 195}, {4, 1, 0, 77}};
  for (const auto& [pp, vpp, group, m] : shapes) {
    Layout l;
    l.pp = pp;
    l.vpp = vpp;
    l.microbatch_group_size_per_vp_stage = group;
    p.global_batch_size = m * l.dp(p.world);
    const MeshTables t = must(make_mesh_tables(p, l));
    for (int rank = 0; rank < pp; ++rank) {
      for (const bool overlap : {false, true}) {
        ScheduleShape s = schedule_shape(l, m);
        s.overlap = overlap;
        auto full = alive_vectors(s, rank);
        const Alive& alive = overlap ? t.pipeline->alive_overlap : t.pipeline->alive;
        std::vector<std::vector<int>> few;
        for (std::size_t v = 0; v < alive.size(rank); ++v)
          few.emplace_back(alive.vector(rank, v), alive.vector(rank, v) + vpp);
        std::sort(full.begin(), full.end());
        std::sort(few.begin(), few.end());
        INFO("pp " << pp << " vpp " << vpp << " M " << m << " rank " << rank << " overlap "
                   << overlap);
        CHECK(few == full);
      }
    }
  }
}
