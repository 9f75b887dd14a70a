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
  std::vector<ScheduleTimes> times;
};
Case draw(std::mt19937& random, int most) {
  const auto any = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Case c;
  ScheduleShape& s = c.shape = random_shape(random, 9, 4, 220);
  if (s.vpp > 1) s.microbatches += s.group * any(0, 20);
  for (int i = any(1, most); i > 0; --i) {
    ScheduleTimes& t = c.times.emplace_back(random_times(random, s));
    const double spread = any(0, 2) == 0 ? 0 : any(0, 1) == 0 ? 1e-3 : 0.5;
    std::uniform_real_distribution<double> noise(1, 1 + spread);
    if (any(0, 3) == 0) continue;
    for (double& f : t.forward) f = 3.1e-3 * noise(random);
    for (double& b : t.backward) b = 6.3e-3 * noise(random);
    for (double& both : t.both) both = 8.7e-3 * noise(random);
    t.p2p *= 1e-3;
  }
  return c;
}

}  // namespace

TEST_CASE("do schedules of which a part is walked end as the whole ones, bit for bit?") {
  std::mt19937 random(71);
  ScheduleWalker walker;
  for (int i = 0; i < 1000; ++i) {
    const Case c = draw(random, 11);
    std::vector<ScheduleTimes> times;
    for (const ScheduleTimes& t : c.times) times.push_back(on_grid(c.shape, t));
    std::vector<Walk> walks(times.size());
    walker.walk(c.shape, times, walks, true);
    for (std::size_t lane = 0; lane < times.size(); ++lane) {
      const Walk whole = walk(c.shape, times[lane]);
      const Walk& fast = walks[lane];
      INFO("case " << i << ", " << lane << " of " << times.size() << ": " << to_string(c.shape));
      REQUIRE(fast.makespan == whole.makespan);
      for (std::size_t r = 0; r < whole.ranks.size(); ++r) {
        REQUIRE(fast.ranks[r].end == whole.ranks[r].end);
        REQUIRE(fast.ranks[r].busy == whole.ranks[r].busy);
        REQUIRE_THAT(fast.ranks[r].p2p_blocked, WithinRel(whole.ranks[r].p2p_blocked, 1e-12));
        REQUIRE(fast.ranks[r].last_backward_end == whole.ranks[r].last_backward_end);
      }
    }
  }
}

TEST_CASE("the grid moves a step by less than a part in 10^10, and no duration by half its unit") {
  std::mt19937 random(72);
  for (int i = 0; i < 200; ++i) {
    const Case c = draw(random, 1);
    const ScheduleTimes t = on_grid(c.shape, c.times.front());
    CHECK_THAT(walk(c.shape, t).makespan,
               WithinRel(walk(c.shape, c.times.front()).makespan, 1e-10));
    CHECK(on_grid(c.shape, t).forward == t.forward);  // what is on the grid stays
  }
}
