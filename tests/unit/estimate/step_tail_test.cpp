// Gradient reduction, optimizer and parameter gather around a walked schedule.
#include "estimate/step_tail.hpp"

#include "catch.hpp"
#include "problem_of.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

RankParams only_experts(double elements) {
  RankParams p;
  p.expert = elements;
  return p;
}
RankParams only_dense(double elements) {
  RankParams p;
  p.dense = elements;
  return p;
}
Layout mesh(int tp, int ep, int etp = 1) {
  Layout l;
  l.tp = tp;
  l.ep = ep;
  l.etp = etp;
  return l;
}

/// A Problem without fixed time per step, and one rank that ends its backward after 10 s.
struct Tail {
  Tail() : problem(problem_of("qwen3-30b-a3b", "dgx-h100", 64)) {
    problem.profile.calibration.step_fixed_ms = 0;
    problem.profile.calibration.contention_compute_per_sm = 0;
    walk.ranks = {{10, 10, 0, {10}}};
    walk.makespan = 10;
  }
  [[nodiscard]] double step(const TailCosts& c, double forward, double backward) const {
    return step_tail(problem, layout, {c}, walk, {forward}, {backward}).step;
  }
  Problem problem;
  Layout layout;
  Walk walk;
};

}  // namespace

TEST_CASE("expert gradients and optimizer state are sharded over EDP, not over DP") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 64);
  const RankParams experts = only_experts(1e9), dense = only_dense(1e9);
  // EP 64: one copy of each expert, nothing to reduce
  CHECK(tail_costs(p, mesh(1, 64), experts).reduce == 0);
  CHECK(tail_costs(p, mesh(1, 64), experts).gather == 0);
  CHECK(tail_costs(p, mesh(1, 32), experts).reduce > 0);
  CHECK(tail_costs(p, mesh(1, 64), dense).reduce > 0);
  // halving DP by TP 2 leaves EDP, and so the experts' costs, as they were
  CHECK(tail_costs(p, mesh(2, 8), experts).reduce == tail_costs(p, mesh(1, 8), experts).reduce);
  // (the scaling pass is skipped where nothing is data parallel; at DP 64 and 32 both have it)
  CHECK(tail_costs(p, mesh(2, 8), experts).optimizer ==
        tail_costs(p, mesh(1, 8), experts).optimizer);
  CHECK(tail_costs(p, mesh(2, 8), dense).optimizer > tail_costs(p, mesh(1, 8), dense).optimizer);
  CHECK(tail_costs(p, mesh(1, 16), dense).reduce == tail_costs(p, mesh(1, 8), dense).reduce);
  CHECK(tail_costs(p, mesh(1, 16), experts).optimizer >
        tail_costs(p, mesh(1, 8), experts).optimizer);
}

TEST_CASE("without the distributed optimizer gradients are all-reduced and nothing is gathered") {
  const Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 64);
  Layout l = mesh(1, 8);
  const TailCosts sharded = tail_costs(p, l, only_dense(1e9));
  l.distributed_optimizer = false;
  const TailCosts whole = tail_costs(p, l, only_dense(1e9));
  CHECK(whole.gather == 0);
  CHECK(whole.reduce > sharded.reduce);
  CHECK(whole.optimizer > sharded.optimizer);
}

TEST_CASE("halved gradients halve the reduction's bytes") {
  Problem p = problem_of("qwen3-30b-a3b", "dgx-h100", 64);
  for (LinkParameters* link :
       {p.profile.calibration.nvlink.data(), p.profile.calibration.network.data()}) {
    for (int i = 0; i < static_cast<int>(Collective::count); ++i) {
      link[i].latency_us = link[i].latency_us_per_rank = link[i].ramp_us = 0;
    }
  }
  Layout l = mesh(1, 8);
  const double fp32 = tail_costs(p, l, only_dense(1e9)).reduce;
  l.grad_dtype = DType::bf16;
  CHECK_THAT(tail_costs(p, l, only_dense(1e9)).reduce, WithinRel(0.5 * fp32, 1e-12));
}

TEST_CASE("without pipelining the last backward hides all of the reduction but its last bucket") {
  Tail t;
  TailCosts c;
  c.reduce = 3;
  c.reduce_bucket = 0.5;
  c.optimizer = 1;
  CHECK_THAT(t.step(c, 1, 5), WithinRel(10 + 0.5 + 1, 1e-12));
  CHECK_THAT(t.step(c, 1, 2), WithinRel(10 + 1 + 1, 1e-12));
  t.layout.overlap_grad_reduce = false;
  CHECK_THAT(t.step(c, 1, 5), WithinRel(10 + 3 + 1, 1e-12));
}

TEST_CASE("without pipelining the first forward hides the gather but for its first bucket") {
  Tail t;
  TailCosts c;
  c.gather = 4;
  c.gather_bucket = 0.25;
  CHECK_THAT(t.step(c, 5, 1), WithinRel(10 + 0.25, 1e-12));
  CHECK_THAT(t.step(c, 3, 1), WithinRel(10 + 1, 1e-12));
  t.layout.overlap_param_gather = false;
  CHECK_THAT(t.step(c, 5, 1), WithinRel(10 + 4, 1e-12));
}

TEST_CASE("1F1B: later stages reduce in their trailing bubble, and the slowest rank decides") {
  Tail t;
  t.layout.pp = 2;
  t.walk.ranks = {{10, 8, 0, {10}}, {7, 7, 0, {7}}};
  TailCosts c;
  c.reduce = 2;
  c.reduce_bucket = 0.5;
  const auto reduced = [&] {
    return step_tail(t.problem, t.layout, {c, c}, t.walk, {1, 1}, {4, 4});
  };
  CHECK_THAT(reduced().reduced[0],
             WithinRel(10.5, 1e-12));  // hidden by the last backward but for a bucket
  CHECK_THAT(reduced().reduced[1], WithinRel(9.0, 1e-12));  // all of it after 7
  CHECK_THAT(reduced().synced, WithinRel(10.5, 1e-12));
  c.reduce = 6;
  CHECK_THAT(reduced().synced,
             WithinRel(13.0, 1e-12));  // rank 1: 7 + 6, later than rank 0's 10 + 2
}

TEST_CASE("interleaved: each chunk's reduction starts behind its own last backward") {
  Tail t;
  t.layout.vpp = 2;
  t.layout.pp = 2;
  t.walk.ranks = {{10, 9, 0, {10, 6}}, {9, 9, 0, {9, 5}}};
  TailCosts c;
  c.reduce = 2;  // one second a chunk
  const StepTail s = step_tail(t.problem, t.layout, {c, c}, t.walk, {1, 1}, {1, 1});
  CHECK_THAT(s.reduced[0], WithinRel(11.0, 1e-12));  // chunk 1: 6-7, chunk 0: 10-11
  CHECK_THAT(s.reduced[1], WithinRel(10.0, 1e-12));
}
