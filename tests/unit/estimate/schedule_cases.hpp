#pragma once
/// Random schedules that Megatron accepts, and what its pieces take.
#include <algorithm>
#include <random>
#include <sstream>
#include <string>

#include "estimate/schedule.hpp"

namespace moecast::test {

inline std::string to_string(const ScheduleShape& s) {
  std::ostringstream text;
  text << "pp " << s.pp << " vpp " << s.vpp << " M " << s.microbatches << " G " << s.group
       << (s.overlap ? " overlap" : "");
  return text.str();
}

/// Interleaving needs G >= PP and a last group that is full or at least PP (schedules.py raises
/// otherwise); combined steps exist for interleaving and for PP 1 only.
inline ScheduleShape random_shape(std::mt19937& random, int max_pp = 8, int max_vpp = 4,
                                  int max_microbatches = 24) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  ScheduleShape s;
  s.pp = pick(1, max_pp);
  s.vpp = s.pp == 1 ? 1 : pick(1, max_vpp);
  if (s.vpp == 1) {
    s.microbatches = pick(1, max_microbatches);
    s.group = std::min(s.pp, s.microbatches);
    s.overlap = s.pp == 1 && pick(0, 1) == 1;
    return s;
  }
  s.group = pick(s.pp, 2 * s.pp);
  const int last = pick(0, 1) == 0 ? 0 : pick(s.pp, s.group);
  s.microbatches = s.group * pick(last == 0 ? 1 : 0, 3) + last;
  s.group = std::min(s.group, s.microbatches);
  s.overlap = pick(0, 1) == 1;
  return s;
}

/// Every stage its own times. Combined steps take at least the longer of their two halves.
inline ScheduleTimes random_times(std::mt19937& random, const ScheduleShape& s) {
  std::uniform_real_distribution<double> spread(0.2, 1.8);
  ScheduleTimes t;
  const auto stages = static_cast<std::size_t>(s.pp * s.vpp);
  for (std::size_t i = 0; i < stages; ++i) {
    t.forward.push_back(spread(random));
    t.backward.push_back(2 * spread(random));
  }
  for (std::size_t i = 0; s.overlap && i < stages * s.vpp; ++i) {
    const double f = t.forward[i / s.vpp];
    const double b = t.backward[i / s.vpp / s.vpp * s.vpp + i % s.vpp];
    t.both.push_back(std::max(f, b) + 0.5 * spread(random) * std::min(f, b));
  }
  t.p2p = std::uniform_int_distribution<int>(0, 1)(random) * 0.1 * spread(random);
  t.p2p_blocks = s.vpp == 1;
  return t;
}

/// Equal stages: `forward` and `backward` seconds of a whole rank, split evenly over its chunks.
inline ScheduleTimes equal_times(const ScheduleShape& s, double forward, double backward) {
  ScheduleTimes t;
  const auto stages = static_cast<std::size_t>(s.pp * s.vpp);
  t.forward.assign(stages, forward / s.vpp);
  t.backward.assign(stages, backward / s.vpp);
  return t;
}

}  // namespace moecast::test
