// The priced operations of a layer do the layer's FLOPs, however it is divided: on a machine where
// a GEMM takes exactly its FLOPs.
#include <algorithm>
#include <array>

#include "catch.hpp"
#include "estimate/layer_ops.hpp"
#include "estimate/tables.hpp"
#include "problem_of.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

constexpr double kPeak = 1e15;

/// One SM, so that every tile is a wave of its own; memory, launches and ramps cost nothing.
Problem ideal(const std::string& model) {
  Problem p = problem_of(model, "dgx-h100", 64);
  System s = p.system();
  s.gpu.sms = 1;
  s.gpu.bf16 = FlopsPerSecond(kPeak);
  s.gpu.hbm_bandwidth = BytesPerSecond(1e30);
  p.cluster = must(Cluster::build(s, 64));
  Calibration& c = p.profile.calibration;
  c.gemm[0] = {.launch_us = 0, .efficiency = 1, .k_half = 0, .bandwidth_fraction = 1};
  c.grouped[0] = {.efficiency_ratio = 1, .wgrad_ratio = 1, .fused_efficiency_ratio = 1};
  c.fp32_gemm_tflops = kPeak / 1e12;
  c.kernel_floor_us = 0;
  return p;
}

double flops(const std::vector<Op>& ops, OpClass cls) {
  double seconds = 0;
  for (const Op& op : ops) seconds += op.cls == cls ? op.gpu.value : 0;
  return seconds * kPeak;
}

/// TP, CP, EP, expert TP, micro batch.
const std::vector<ShardKey>& divisions() {
  static const std::vector<ShardKey> all = [] {
    std::vector<ShardKey> keys;
    const std::vector<std::array<int, 5>> sizes = {{1, 1, 1, 1, 1},  {2, 1, 8, 1, 1},
                                                   {4, 2, 16, 1, 2}, {1, 4, 32, 1, 1},
                                                   {2, 1, 8, 2, 1},  {4, 1, 4, 4, 2}};
    for (const auto& [tp, cp, ep, etp, mbs] : sizes) {
      Layout l;
      l.tp = tp;
      l.cp = cp;
      l.ep = ep;
      l.etp = etp;
      l.micro_batch_size = mbs;
      keys.push_back(shard_key(l));
    }
    return keys;
  }();
  return all;
}

/// Forward weights (elements) that a token meets in dense GEMMs, and in the experts.
void check_work(const Problem& p, const LayerKind& kind, double dense, double experts) {
  for (const ShardKey& k : divisions()) {
    const LayerOps ops = layer_ops(p, k, kind);
    const double tokens = 4096.0 * k.micro_batch_size, ranks = k.tp * k.cp;
    INFO(p.model.name << " tp " << k.tp << " cp " << k.cp << " ep " << k.ep << " etp " << k.etp
                      << " mbs " << k.micro_batch_size);
    CHECK_THAT(ranks * flops(ops.forward, OpClass::dense_gemm),
               WithinRel(2 * tokens * dense, 1e-9));
    CHECK_THAT(ranks * flops(ops.backward, OpClass::dense_gemm),
               WithinRel(4 * tokens * dense, 1e-9));
    // rows that a router gives an expert fill their last tile by half, in forward and dgrad
    const double forward = ranks * flops(ops.forward, OpClass::grouped_gemm),
                 backward = ranks * flops(ops.backward, OpClass::grouped_gemm);
    CHECK(forward >= (1 - 1e-9) * 2 * tokens * experts);
    CHECK(forward <= 1.15 * 2 * tokens * experts);
    // forward and dgrad lose alike, up to the tile that each prefers
    CHECK_THAT(backward - forward, WithinRel(2 * tokens * experts, 1e-2) || WithinAbs(0, 1e-9));
  }
}

const LayerKind& layer_with(const Problem& p, FfnKind ffn) {
  return *std::find_if(p.classes.begin(), p.classes.end(),
                       [&](const LayerKind& k) { return k.ffn == ffn; });
}

}  // namespace

TEST_CASE("a layer of Qwen3-30B-A3B does its FLOPs on any division") {
  const Problem p = ideal("qwen3-30b-a3b");
  const double attention = 2048.0 * (32 + 2 * 4) * 128 + 32 * 128 * 2048.0, router = 2048 * 128;
  check_work(p, layer_with(p, FfnKind::moe), attention + router, 8 * 3 * 2048.0 * 768);
}

TEST_CASE("a layer of DeepSeek-V3 does its FLOPs on any division") {
  const Problem p = ideal("deepseek-v3");
  const double mla =
      7168.0 * 1536 + 1536.0 * 128 * 192 + 7168.0 * 576 + 512.0 * 128 * 256 + 128.0 * 128 * 7168;
  check_work(p, layer_with(p, FfnKind::moe), mla + 7168 * 256 + 3 * 7168.0 * 2048,
             8 * 3 * 7168.0 * 2048);
  check_work(p, layer_with(p, FfnKind::dense), mla + 3 * 7168.0 * 18432, 0);
}

TEST_CASE("the output layer does 2 h V FLOPs a token, padded vocabulary included") {
  const Problem p = ideal("qwen3-30b-a3b");
  for (const ShardKey& k : divisions()) {
    const double padded = padded_vocab_size(p.model, k.tp), tokens = 4096.0 * k.micro_batch_size;
    const LayerOps head = head_ops(p, k);
    CHECK_THAT(k.tp * k.cp * flops(head.forward, OpClass::dense_gemm),
               WithinRel(2 * tokens * 2048 * padded, 1e-9));
  }
}

TEST_CASE("the sums that the bound reads are the sums of the operations") {
  const Problem p = problem_of("deepseek-v3", "dgx-h100", 64);
  for (const ShardKey& k : divisions()) {
    for (const LayerKind& kind : p.classes) {
      const LayerOps ops = layer_ops(p, k, kind);
      const OpSums s = sum_ops(ops.backward);
      double all = 0;
      for (const Op& op : ops.backward) all += op.gpu.value;
      CHECK_THAT(s.compute + s.side + s.shared + s.ep + s.other, WithinRel(all, 1e-12));
    }
  }
}

TEST_CASE("a router that favours one rank gives the busiest rank that much more expert work") {
  Problem p = ideal("qwen3-30b-a3b");
  const ShardKey k = divisions()[1];
  const LayerKind& kind = layer_with(p, FfnKind::moe);
  const double balanced = flops(layer_ops(p, k, kind).forward, OpClass::grouped_gemm);
  p.imbalance = 1.25;
  CHECK_THAT(flops(layer_ops(p, k, kind).forward, OpClass::grouped_gemm),
             WithinRel(1.25 * balanced, 1e-2));
}
