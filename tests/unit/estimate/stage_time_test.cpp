// Host queue and GPU streams on chains that can be followed by hand. All times in microseconds.
#include <algorithm>
#include <array>
#include <random>

#include "catch.hpp"
#include "estimate/chunk_time.hpp"

using namespace moecast;

namespace {

constexpr double kUs = 1e-6;

/// A machine without latencies of its own: only what the operations say.
Problem bare_problem(double sync_us = 0) {
  Problem p;
  p.profile.calibration.sync_us = sync_us;
  return p;
}

IssuedOp op(double gpu, double host, Part part = Part::attention,
            OpClass cls = OpClass::dense_gemm) {
  IssuedOp o;
  o.name = "op";
  o.gpu = gpu * kUs;
  o.host = host * kUs;
  o.part = part;
  o.cls = cls;
  return o;
}

StageTime time_of(const Problem& p, const IssuedLayer& layer, bool drained) {
  return stage_time(p, {&layer}, drained, false);
}

void check_us(double seconds, double us) { CHECK_THAT(seconds / kUs, WithinRel(us, 1e-9)); }

/// C, A, E, D of a layer pair in the order of Megatron's combined step.
IssuedLayer pair_layer(const std::array<double, 4>& forward,
                       const std::array<double, 4>& backward) {
  constexpr Part parts[] = {Part::attention, Part::dispatch, Part::experts, Part::combine};
  constexpr OpClass classes[] = {OpClass::dense_gemm, OpClass::ep_comm, OpClass::grouped_gemm,
                                 OpClass::ep_comm};
  IssuedLayer layer;
  for (int i = 0; i < 4; ++i) layer.forward.push_back(op(forward[i], 0, parts[i], classes[i]));
  for (int i = 3; i >= 0; --i) layer.backward.push_back(op(backward[i], 0, parts[i], classes[i]));
  return layer;
}

}  // namespace

TEST_CASE("a GPU-bound chain waits for its first launch and then runs without gaps") {
  const IssuedLayer layer{{op(10, 1), op(10, 1), op(10, 1)}, {op(20, 1)}};
  const StageTime t = time_of(bare_problem(), layer, true);
  check_us(t.forward.duration, 31);
  check_us(t.forward.compute(), 30);
  check_us(t.forward.host_exposed(), 1);
  check_us(t.backward.duration, 21);
}

TEST_CASE("a host-bound chain takes its host time and the last kernel") {
  const IssuedLayer layer{{op(1, 10), op(1, 10), op(1, 10)}, {op(1, 10)}};
  const StageTime t = time_of(bare_problem(), layer, true);
  check_us(t.forward.duration, 31);
  check_us(t.forward.host_exposed(), 28);
}

TEST_CASE("behind a sync the host starts from nothing") {
  IssuedLayer layer{{op(10, 1), op(10, 1), op(10, 1)}, {op(1, 1)}};
  layer.forward[0].sync = true;
  // first ends at 11, the host wakes up at 13, launches at 14 and 15: 14..24, 24..34
  const StageTime t = time_of(bare_problem(2), layer, true);
  check_us(t.forward.duration, 34);
  check_us(t.forward.host_exposed(), 4);
}

TEST_CASE("an operation of several kernels cannot end before its last launch") {
  IssuedLayer layer{{op(4, 40)}, {op(1, 1)}};
  layer.forward[0].launches = 4;
  check_us(time_of(bare_problem(), layer, true).forward.duration, 40);
  layer.forward[0].gpu =
      100 * kUs;  // GPU-bound: first kernel after the first quarter of the launches
  check_us(time_of(bare_problem(), layer, true).forward.duration, 110);
}

TEST_CASE("in the steady state the host runs ahead across forward and backward") {
  const IssuedLayer layer{{op(10, 1), op(10, 1)}, {op(20, 1)}};
  const StageTime t = time_of(bare_problem(), layer, false);
  check_us(t.forward.duration, 20);
  check_us(t.backward.duration, 20);
}

TEST_CASE(
    "communication on the compute stream is exposed in full, shared experts hide a part of it") {
  IssuedLayer layer{{op(5, 0), op(8, 0, Part::dispatch, OpClass::ep_comm), op(3, 0, Part::experts),
                     op(4, 0, Part::combine, OpClass::ep_comm)},
                    {op(1, 0)}};
  const StageTime serial = stage_time(bare_problem(), {&layer}, true, false);
  check_us(serial.forward.duration, 20);
  check_us(serial.forward.ep_exposed, 12);
  layer.forward[0].shared = true;  // 5 of shared expert: 2.5 beside dispatch, 2.5 beside combine
  const StageTime beside = stage_time(bare_problem(), {&layer}, true, true);
  check_us(beside.forward.duration, 15);
  check_us(beside.forward.ep_exposed, 7);
  check_us(beside.forward.compute(), 8);
}

TEST_CASE("shared experts beside communication cost their time in backward too") {
  // combine 4 and dispatch 8 come before the shared expert's 5 in launch order; the longer of comm
  // and shared work remains
  IssuedLayer layer{{op(1, 0)},
                    {op(4, 0, Part::combine, OpClass::ep_comm), op(3, 0, Part::experts),
                     op(8, 0, Part::dispatch, OpClass::ep_comm), op(5, 0)}};
  layer.backward[3].shared = true;
  const Spent beside = stage_time(bare_problem(), {&layer}, true, true).backward;
  check_us(beside.duration, 15);
  check_us(beside.compute(), 8);
  check_us(beside.ep_exposed, 7);
}

TEST_CASE("shared experts with nothing to hide behind take their time") {
  IssuedLayer layer{{op(5, 0), op(3, 0, Part::experts)}, {op(3, 0, Part::experts), op(5, 0)}};
  layer.forward[0].shared = layer.backward[1].shared = true;
  const StageTime t = stage_time(bare_problem(), {&layer}, true, true);
  check_us(t.forward.duration, 8);
  check_us(t.backward.duration, 8);
}

TEST_CASE("a combined step follows Megatron's order of a layer pair") {
  // C_b 0-2 | A_f 0-4, E_b 4-10 | D_f 4-7 | D_b 10-13 | E_f 10-15 | C_f 15-17 | A_b 15-23
  const IssuedLayer f = pair_layer({4, 3, 5, 2}, {1, 1, 1, 1}),
                    b = pair_layer({1, 1, 1, 1}, {8, 3, 6, 2});
  const Spent all_hidden = overlapped_time(bare_problem(), {&f}, {&b}, {});
  check_us(all_hidden.duration, 23);
  check_us(all_hidden.compute(), 23);
  CHECK(all_hidden.ep_exposed == 0);
  // a shorter A_f leaves 1 of C_b alone, and everything else moves up by 2
  const IssuedLayer quick = pair_layer({1, 3, 5, 2}, {1, 1, 1, 1});
  const Spent some = overlapped_time(bare_problem(), {&quick}, {&b}, {});
  check_us(some.duration, 21);
  check_us(some.ep_exposed, 1);
}

TEST_CASE("delayed weight gradients fill the gap that dispatch leaves") {
  IssuedLayer f = pair_layer({1, 2, 5, 1}, {1, 1, 1, 1}),
              b = pair_layer({1, 1, 1, 1}, {2, 6, 6, 1});
  b.backward[1].gpu = 3 * kUs;  // experts: 3 dgrad, then 3 wgrad
  IssuedOp wgrad = b.backward[1];
  wgrad.wgrad = true;
  b.backward.insert(b.backward.begin() + 2, wgrad);
  // C_b 0-1, A_f 0-1, E_b 1-7, D_f 1-3, D_b 7-13, E_f 7-12, C_f 13-14, A_b 13-15
  check_us(overlapped_time(bare_problem(), {&f}, {&b}, {}).duration, 15);
  // E_b 1-4, E_dw 4-7, D_b 4-10, E_f 7-12, A_b 12-14, C_f 12-13
  IssueFlags delayed;
  delayed.delay_wgrad = true;
  check_us(overlapped_time(bare_problem(), {&f}, {&b}, delayed).duration, 14);
}

TEST_CASE("a combined step lies between its busiest stream and the serial sum") {
  std::mt19937 random(31);
  std::uniform_real_distribution<double> time(0, 10);
  for (int i = 0; i < 300; ++i) {
    const int forward_layers = 1 + i % 3, backward_layers = 1 + i / 3 % 3;
    std::vector<IssuedLayer> layers;
    for (int l = 0; l < forward_layers + backward_layers; ++l) {
      layers.push_back(pair_layer({time(random), time(random), time(random), time(random)},
                                  {time(random), time(random), time(random), time(random)}));
    }
    IssuedStage f, b;
    double compute = 0, comm = 0;
    for (int l = 0; l < forward_layers + backward_layers; ++l) {
      const bool forward = l < forward_layers;
      (forward ? f : b).push_back(&layers[static_cast<std::size_t>(l)]);
      for (const IssuedOp& o : forward ? f.back()->forward : b.back()->backward)
        (o.cls == OpClass::ep_comm ? comm : compute) += o.gpu;
    }
    const Spent s = overlapped_time(bare_problem(), f, b, {});
    INFO("case " << i);
    REQUIRE(s.duration >= std::max(compute, comm) * (1 - 1e-12));
    REQUIRE(s.duration <= (compute + comm) * (1 + 1e-12));
    REQUIRE(s.ep_exposed <= comm * (1 + 1e-12));
    REQUIRE_THAT(s.duration,
                 WithinRel(s.compute() + s.ep_exposed, 1e-9));  // no host: nothing else to wait for
  }
}

TEST_CASE("contention lengthens a combined step and never shortens it") {
  const IssuedLayer f = pair_layer({4, 3, 5, 2}, {1, 1, 1, 1}),
                    b = pair_layer({1, 1, 1, 1}, {8, 3, 6, 2});
  Problem p = bare_problem();
  const double alone = overlapped_time(p, {&f}, {&b}, {}).duration;
  p.profile.calibration.contention_compute_per_sm = 1;
  IssueFlags flags;
  flags.sm_share = 0.15;
  // communication is 10 beside 23 of compute, all of it hidden: compute grows by 15 % of 10
  check_us(overlapped_time(p, {&f}, {&b}, flags).duration, alone / kUs + 1.5);
}

TEST_CASE("with one hardware queue a kernel waits for the start of those issued before it") {
  const IssuedLayer layer = pair_layer({10, 10, 10, 10}, {10, 10, 10, 10});
  Problem p = bare_problem();
  p.profile.calibration.host_overlap_factor = 1;
  IssueFlags flags;
  flags.overlap = true;
  const double free = overlapped_time(p, {&layer}, {&layer}, flags).duration;
  p.features.single_queue = true;
  const double queued = overlapped_time(p, {&layer}, {&layer}, flags).duration;
  CHECK(queued >= free);
  // C_b | A_f at 0; E_b and D_f at 10 (D_f is issued after E_b); D_b, E_f at 20; C_f at 30, A_b at
  // 30
  check_us(queued, 40);
}
