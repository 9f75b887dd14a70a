#pragma once
/// What is kept of repeated timings of one kernel, and when they are refused. Pure.
#include <vector>

namespace moecast {

struct Timing {
  int n = 0;
  double median_us = 0, min_us = 0, max_us = 0;
  double spread_pct = 0;  ///< 90th minus 10th percentile, of the median
  double sm_clock_mhz = 0, power_w = 0;
  bool is_throttled =
      false;  ///< the device slowed down for heat or by hardware, not for its power cap
};

/// Timings of a kernel spread by less than this; otherwise they are repeated.
inline constexpr double kSpreadLimitPct = 5.0;
/// Below this duration the clock's own resolution and launch jitter count: absolute spread allowed.
inline constexpr double kSpreadFloorUs = 0.5;
/// After this many tries the quietest is kept if it is within kGiveUpFactor of the limit.
inline constexpr int kTries = 3;
inline constexpr double kGiveUpFactor = 6.0;

Timing summarize(std::vector<double> us);
/// Spread relative to what is allowed at that duration: 1 = just acceptable.
double noise(const Timing& t);
inline bool is_accepted(const Timing& t) { return !t.is_throttled && noise(t) <= 1.0; }
inline bool is_usable(const Timing& t) { return !t.is_throttled && noise(t) <= kGiveUpFactor; }

}  // namespace moecast
