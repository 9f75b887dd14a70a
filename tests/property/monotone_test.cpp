// Which way a change may move the forecast.
#include <algorithm>
#include <cstdint>

#include "catch.hpp"
#include "problem_of.hpp"
#include "random_layouts.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

constexpr double kRounding = 1 + 1e-12;
/// Clocks follow the tensor cores' share, prices average the nearly best tiles, and what hides
/// takes SMs: work off the critical path that gets cheaper may cost this much on it.
constexpr double kSlack = 1 + 1e-5;

/// True for a rate or a share of a peak, false for a latency or a loss.
bool higher_is_better(const std::string& path) {
  const auto has = [&](const char* word) { return path.find(word) != std::string::npos; };
  if (has("wave_quantization")) return false;
  return has("fraction") || has("efficiency") || has("grad_ratio") || has("speedup") ||
         has("tflops") || has("gb_per_s") || has("ramp_mib");
}

std::uint16_t bit(RecomputeModule m) {
  return static_cast<std::uint16_t>(1u << static_cast<int>(m));
}

/// `l` recomputing the modules of `bits`.
Layout recomputing(Layout l, std::uint16_t bits) {
  l.recompute_granularity =
      bits == 0 ? RecomputeGranularity::none : RecomputeGranularity::selective;
  l.recompute_method = RecomputeMethod::none;
  l.recompute_num_layers = 0;
  l.recompute_modules.bits = bits;
  return l;
}

/// Activations that wait for their backward on the fullest rank, without the transients of a
/// moment.
double waiting(const Problem& p, const Layout& l) {
  Evaluator e(p);
  const ShardTables shard = make_shard_tables(p, shard_key(l));
  const MeshTables mesh = must(make_mesh_tables(p, l));
  const std::uint16_t bits = l.recompute_granularity == RecomputeGranularity::selective
                                 ? l.recompute_modules.bits
                                 : std::uint16_t{0};
  double most = 0;
  for (const StageCounts& stage : mesh.stages()) {
    double sum = 0;
    for (std::size_t c = 0; c < stage.layers.size(); ++c)
      sum += stage.layers[c] * shard.classes[c].memory.stored(bits);
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

TEST_CASE("a better machine is never slower, whichever parameter is better") {
  LegalLayouts samples(201);
  const auto& table = parameter_table();
  for (int i = 0; i < 60; ++i) {
    Sample s = samples.next();
    // power apart: hidden work that gets shorter leaves tensor cores a larger share, and less clock
    s.problem.profile.calibration.burst_gain = 0;
    const double before = step_of(s.problem, s.layout);
    for (int j = 0; j < 5; ++j) {
      const Parameter& parameter =
          table[std::uniform_int_distribution<std::size_t>(0, table.size() - 1)(samples.random())];
      Problem better = s.problem;
      double& value = parameter.in(better.profile.calibration);
      if (value == 0) continue;  // not limited by it
      value *= higher_is_better(parameter.path) ? 1.25 : 0.75;
      INFO(parameter.path << " = " << value << ", " << s.words);
      CHECK(step_of(better, s.layout) <= before * kSlack);
    }
  }
}

TEST_CASE("a faster network or NVLink is never slower") {
  LegalLayouts samples(202);
  for (int i = 0; i < 80; ++i) {
    const Sample s = samples.next();
    Problem better = s.problem;
    System system = s.problem.system();
    (i % 2 == 0 ? system.nic_per_gpu : system.nvlink_per_direction) *= 2;
    better.cluster =
        must(Cluster::build(system, s.problem.world, s.problem.cluster.gpus_used_per_domain()));
    INFO(s.words);
    CHECK(step_of(better, s.layout) <= step_of(s.problem, s.layout) * kSlack);
  }
}

TEST_CASE("memory capacity never changes the time of a layout") {
  LegalLayouts samples(203);
  for (int i = 0; i < 40; ++i) {
    const Sample s = samples.next();
    Problem other = s.problem;
    System system = s.problem.system();
    system.gpu.hbm_capacity *= i % 2 == 0 ? 0.1 : 10;
    other.cluster =
        must(Cluster::build(system, s.problem.world, s.problem.cluster.gpus_used_per_domain()));
    const Forecast a = forecast(s), b = forecast(other, s.layout);
    INFO(s.words);
    CHECK(a.outcome.step == b.outcome.step);
    CHECK(a.outcome.peak == b.outcome.peak);
    CHECK((b.outcome.status == Outcome::Status::fits) ==
          (b.outcome.reserved <= system.gpu.hbm_capacity.value));
  }
}

TEST_CASE("recomputing one module more is never faster and never keeps more") {
  LegalLayouts samples(204);
  int compared = 0;
  while (compared < 100) {
    const Sample s = samples.next();
    const std::uint16_t bits = s.layout.recompute_granularity == RecomputeGranularity::selective
                                   ? s.layout.recompute_modules.bits
                                   : std::uint16_t{0};
    const Layout less = recomputing(s.layout, bits);
    for (int m = 0; m < static_cast<int>(RecomputeModule::count) && is_legal(s.problem, less);
         ++m) {
      const Layout more = recomputing(
          s.layout, static_cast<std::uint16_t>(bits | bit(static_cast<RecomputeModule>(m))));
      if (more == less || !is_legal(s.problem, more)) continue;
      ++compared;
      INFO("module " << m << " more, " << s.words);
      CHECK(step_of(s.problem, more) >= step_of(s.problem, less) / kRounding);
      CHECK(waiting(s.problem, more) <= waiting(s.problem, less));
    }
  }
}

TEST_CASE("full recomputation is never faster than none, and never needs more memory") {
  LegalLayouts samples(205);
  for (int compared = 0; compared < 40;) {
    const Sample s = samples.next();
    const Layout none = recomputing(s.layout, 0);
    Layout full = none;
    full.recompute_granularity = RecomputeGranularity::full;
    full.recompute_method = RecomputeMethod::uniform;
    full.recompute_num_layers = 1;
    if (!is_legal(s.problem, none) || !is_legal(s.problem, full)) continue;
    ++compared;
    const Outcome a = forecast(s.problem, none).outcome, b = forecast(s.problem, full).outcome;
    INFO(s.words);
    CHECK(b.step >= a.step / kRounding);
    // re-running a layer holds what the layer's own forward and backward moments hold, and its
    // input; behind every MoE layer stays its input and the input's gradient
    const Dims d = make_dims(s.problem, shard_key(s.layout));
    const double layers = static_cast<double>(s.problem.model.layers.size()) / s.layout.pp + 2;
    const double left = layers * 4 * d.h * d.n;
    if (s.problem.global_batch_size / (s.layout.micro_batch_size * s.layout.dp(s.problem.world)) >
            1 &&
        s.layout.pp > 1)
      CHECK(b.peak <= a.peak * kRounding + left);
  }
}

TEST_CASE("more micro batches take longer and never need less memory") {
  LegalLayouts samples(206);
  for (int i = 0; i < 60; ++i) {
    const Sample s = samples.next();
    Problem more = s.problem;
    more.global_batch_size = more.run.global_batch_size = 2 * s.problem.global_batch_size;
    if (!is_legal(more, s.layout)) continue;
    const Outcome a = forecast(s).outcome, b = forecast(more, s.layout).outcome;
    INFO(s.words);
    CHECK(b.step > a.step);
    // (combined steps can be slower than their halves, where the host or contention decides)
    if (!s.layout.overlap_moe_expert_parallel_comm) CHECK(b.step <= 2 * a.step * kRounding);
    CHECK(b.peak >= a.peak / kRounding);
  }
}

TEST_CASE("a skewed router is never faster and never smaller") {
  LegalLayouts samples(207);
  for (int i = 0; i < 60; ++i) {
    const Sample s = samples.next();
    Problem skewed = s.problem;
    skewed.imbalance = 1.3;
    const Outcome a = forecast(s).outcome, b = forecast(skewed, s.layout).outcome;
    INFO(s.words);
    CHECK(b.step >= a.step / kSlack);
    CHECK(b.peak >= a.peak / kRounding);
  }
}

TEST_CASE("an evaluator's answer does not depend on what it has seen before") {
  LegalLayouts samples(208);
  for (int i = 0; i < 15; ++i) {
    const Sample s = samples.next();
    Evaluator used(s.problem);
    std::vector<Layout> layouts{s.layout};
    for (int j = 0; j < 12; ++j) {  // neighbours: one knob of the inner axes or of the mesh changed
      Layout l = layouts.back();
      if (j % 4 == 0) l.recompute_modules.bits ^= bit(RecomputeModule::layernorm);
      if (j % 4 == 1) l.grad_dtype = l.grad_dtype == DType::fp32 ? DType::bf16 : DType::fp32;
      if (j % 4 == 2) l.overlap_grad_reduce = !l.overlap_grad_reduce;
      if (j % 4 == 3) l.micro_batch_size = 3 - l.micro_batch_size;
      layouts.push_back(l);
    }
    for (const Depth depth : {Depth::bound, Depth::exact}) {
      for (const Layout& l : layouts) {
        const Outcome a = used.evaluate(l, depth), b = Evaluator(s.problem).evaluate(l, depth);
        INFO(s.words);
        CHECK(a.status == b.status);
        CHECK(a.peak == b.peak);
        CHECK(a.reserved == b.reserved);
        CHECK(a.bound == b.bound);
        CHECK(a.step == b.step);
      }
    }
  }
}
