// The grid of durations from counts against the grid of everything added up.
#include <cmath>
#include <random>

#include "catch.hpp"
#include "estimate/exact.hpp"

using namespace moecast;

TEST_CASE("is the grid from counts that of all pieces added one by one?") {
  std::mt19937 random(33);
  const auto any = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 5000; ++i) {
    ScheduleShape s{any(1, 16), any(1, 6), any(1, 300), 1, any(0, 1) == 1};
    Pipeline::Distinct d;
    ScheduleTimes own;
    const int stages = any(1, 4), pairs = any(1, 6);
    // powers of two of stages of a power of two: the sum lies on, or a rounding beside, an edge
    const bool edge = any(0, 3) == 0;
    std::uniform_real_distribution<double> seconds(1e-4, 1e-2);
    const double even = std::ldexp(1.0, -any(7, 12)) * (1 + any(-1, 1) * 1e-16);
    const auto draw = [&] { return edge ? even : seconds(random); };
    for (int k = 0; k < stages; ++k) {
      own.forward.push_back(draw());
      own.backward.push_back(draw());
    }
    if (s.overlap)
      for (int k = 0; k < pairs; ++k) own.both.push_back(draw());
    d.stage_count.resize(own.forward.size());
    d.pair_count.resize(static_cast<std::size_t>(pairs));
    for (int k = 0; k < s.pp * s.vpp; ++k) {
      d.of_stage.push_back(static_cast<std::size_t>(any(0, stages - 1)));
      ++d.stage_count[d.of_stage.back()];
    }
    for (int k = 0; k < s.pp * s.vpp * s.vpp; ++k) {
      d.of_pair.push_back(static_cast<std::size_t>(any(0, pairs - 1)));
      ++d.pair_count[d.of_pair.back()];
    }
    own.p2p = edge ? 0 : 0.01 * seconds(random);
    const ExactGrid all(work_in_order(s, d, own) * s.microbatches);
    const double x = seconds(random);
    REQUIRE(grid_of(s, d, own).nearest(x) == all.nearest(x));
  }
}
