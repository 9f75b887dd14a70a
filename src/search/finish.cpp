#include "search/finish.hpp"

#include <algorithm>
#include <tuple>

#include "search/rank_order.hpp"
#include "search/ties.hpp"

namespace moecast {
namespace {

bool was_improved(const RankedLayout& row) { return row.value < row.key.value; }

/// Fastest first; each next one takes less memory.
void add_improved(std::vector<RankedLayout>& front, const std::vector<RankedLayout>& ranked) {
  if (std::none_of(ranked.begin(), ranked.end(), was_improved)) return;
  std::copy_if(ranked.begin(), ranked.end(), std::back_inserter(front), was_improved);
  std::sort(front.begin(), front.end(), [](const RankedLayout& a, const RankedLayout& b) {
    return std::tie(a.value, a.peak_reserved.value, a.key.place) <
           std::tie(b.value, b.peak_reserved.value, b.key.place);
  });
  std::vector<RankedLayout> kept;
  for (const RankedLayout& row : front)
    if (kept.empty() || row.peak_reserved < kept.back().peak_reserved) kept.push_back(row);
  front = first_of(kept, kFrontRows);
}

}  // namespace

void finish(SearchResult& result, int top, int threads) {
  result.ranked =
      in_rank_order(std::move(result.ranked), [](const RankedLayout& a, const RankedLayout& b) {
        return std::tie(a.value, a.key) < std::tie(b.value, b.key);
      });
  add_improved(result.pareto, result.ranked);
  result.ranked = first_of(result.ranked, static_cast<std::size_t>(top));
  judge_ties(result.ranked, threads);
}

}  // namespace moecast
