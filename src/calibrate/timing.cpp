#include "calibrate/timing.hpp"

#include <algorithm>

namespace moecast {
namespace {

/// Nearest-rank with linear interpolation; `sorted` is not empty.
double sample_quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

Timing summarize(std::vector<double> us) {
  Timing t;
  if (us.empty()) return t;
  std::sort(us.begin(), us.end());
  t.n = static_cast<int>(us.size());
  t.median_us = sample_quantile(us, 0.5);
  t.min_us = us.front();
  t.max_us = us.back();
  if (t.median_us > 0)
    t.spread_pct = 100 * (sample_quantile(us, 0.9) - sample_quantile(us, 0.1)) / t.median_us;
  return t;
}

double noise(const Timing& t) {
  const double allowed_us = std::max(t.median_us * kSpreadLimitPct / 100, kSpreadFloorUs);
  return t.spread_pct / 100 * t.median_us / allowed_us;
}

}  // namespace moecast
