#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "layout/pipeline_plan.hpp"

namespace moecast {
namespace {

constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max();

/// Prefix sums of the weights in units of heaviest / 2^20: equal layers stay exactly equal, ties
/// are exact, and the sum of squares of 1000 layers stays below 2^62.
struct Scaled {
  std::vector<std::int64_t> prefix;
  std::int64_t tail = 0;
};

Scaled scale(const std::vector<double>& weights, double tail) {
  double heaviest = 0.0;
  for (double w : weights) heaviest = std::max(heaviest, w);
  const double unit = heaviest > 0.0 ? heaviest / (1 << 20) : 1.0;
  Scaled s;
  s.prefix.push_back(0);
  for (double w : weights) s.prefix.push_back(s.prefix.back() + std::llround(w / unit));
  // Past the total of all layers the tail no longer changes the split: it only has to stay the
  // largest.
  s.tail = std::llround(std::min(tail / unit, static_cast<double>(s.prefix.back()) + 1.0));
  return s;
}

/// Dynamic programme over (stage, end layer): best[i] = min over j of combine(best of the first
/// stage - 1 parts up to j, weight of j..i). Every part has a layer, so stage k ends between k and
/// layers - (stages - k).
template <typename Combine>
std::vector<int> partition(const Scaled& s, int stages, Combine combine, std::int64_t& optimum) {
  const int layers = static_cast<int>(s.prefix.size()) - 1;
  const int slack = layers - stages;
  const std::size_t width = static_cast<std::size_t>(slack) + 1;
  std::vector<std::int64_t> before(width), now(width);
  std::vector<int> from(static_cast<std::size_t>(stages) * width, 0);
  for (int k = 1; k <= stages; ++k) {
    for (int e = 0; e <= slack; ++e) {  // stage k ends at layer k + e
      std::int64_t best = kInfinite;
      int start = k - 1;
      for (int b = 0; b <= (k == 1 ? 0 : e); ++b) {
        const std::int64_t weight = s.prefix[static_cast<std::size_t>(k + e)] -
                                    s.prefix[static_cast<std::size_t>(k - 1 + b)] +
                                    (k == stages ? s.tail : 0);
        const std::int64_t cost = combine(k == 1 ? 0 : before[static_cast<std::size_t>(b)], weight);
        if (cost < best) {
          best = cost;
          start = k - 1 + b;
        }
      }
      now[static_cast<std::size_t>(e)] = best;
      from[static_cast<std::size_t>(k - 1) * width + static_cast<std::size_t>(e)] = start;
    }
    std::swap(before, now);
  }
  optimum = before[static_cast<std::size_t>(slack)];
  std::vector<int> cuts(static_cast<std::size_t>(stages));
  int end = layers;
  for (int k = stages; k >= 1; --k) {
    end = from[static_cast<std::size_t>(k - 1) * width + static_cast<std::size_t>(end - k)];
    cuts[static_cast<std::size_t>(k - 1)] = end;
  }
  return cuts;
}

}  // namespace

std::vector<int> balanced_cuts(const std::vector<double>& weights, int stages, double tail) {
  const Scaled s = scale(weights, tail);
  std::int64_t largest = 0;
  std::int64_t squares = 0;
  partition(
      s, stages, [](std::int64_t a, std::int64_t w) { return std::max(a, w); }, largest);
  return partition(
      s, stages,
      [largest](std::int64_t a, std::int64_t w) {
        return a == kInfinite || w > largest ? kInfinite : a + w * w;
      },
      squares);
}

}  // namespace moecast
