// The fast walk against the whole one.
#include "estimate/schedule_program.hpp"

#include <random>

#include "catch.hpp"
#include "schedule_cases.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

/// Shapes up to a few hundred microbatches; durations of equal, nearly equal or unrelated stages.
struct Case {
  ScheduleShape shape;
  ScheduleTimes times;
};
Case draw(std::mt19937& random) {
  const auto any = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Case c;
  ScheduleShape& s = c.shape = random_shape(random, 9, 4, 220);
  if (s.vpp > 1) s.microbatches += s.group * any(0, 20);
  c.times = random_times(random, s);
  const double spread = any(0, 2) == 0 ? 0 : any(0, 1) == 0 ? 1e-3 : 0.5;
  std::uniform_real_distribution<double> noise(1, 1 + spread);
  if (any(0, 3) > 0) {
    for (double& f : c.times.forward) f = 3.1e-3 * noise(random);
    for (double& b : c.times.backward) b = 6.3e-3 * noise(random);
    for (double& both : c.times.both) both = 8.7e-3 * noise(random);
    c.times.p2p *= 1e-3;
  }
  return c;
}

}  // namespace

TEST_CASE("does a schedule of which a part is walked end as the whole one, bit for bit?") {
  std::mt19937 random(71);
  ScheduleWalker walker;
  for (int i = 0; i < 3000; ++i) {
    const Case c = draw(random);
    const ScheduleTimes t = on_grid(c.shape, c.times);
    const Walk whole = walk(c.shape, t), fast = walker.walk(c.shape, t);
    INFO("case " << i << ": pp " << c.shape.pp << " vpp " << c.shape.vpp << " M "
                 << c.shape.microbatches << " group " << c.shape.group << " overlap "
                 << c.shape.overlap);
    REQUIRE(fast.makespan == whole.makespan);
    for (std::size_t r = 0; r < whole.ranks.size(); ++r) {
      REQUIRE(fast.ranks[r].end == whole.ranks[r].end);
      REQUIRE(fast.ranks[r].busy == whole.ranks[r].busy);
      REQUIRE_THAT(fast.ranks[r].p2p_blocked, WithinRel(whole.ranks[r].p2p_blocked, 1e-12));
      REQUIRE(fast.ranks[r].last_backward_end == whole.ranks[r].last_backward_end);
    }
  }
}

TEST_CASE("the grid moves a step by less than a part in 10^10, and no duration by half its unit") {
  std::mt19937 random(72);
  for (int i = 0; i < 200; ++i) {
    const Case c = draw(random);
    const ScheduleTimes t = on_grid(c.shape, c.times);
    CHECK_THAT(walk(c.shape, t).makespan, WithinRel(walk(c.shape, c.times).makespan, 1e-10));
    CHECK(on_grid(c.shape, t).forward == t.forward);  // what is on the grid stays
  }
}
