#include "search/ties.hpp"

#include <algorithm>
#include <cmath>

#include "estimate/interval.hpp"
#include "search/enumerate.hpp"

namespace moecast {

bool RankedLayout::told_apart_from(const RankedLayout& first) const {
  return !slower_half_width || std::log(value / first.value) > *slower_half_width;
}

void judge_ties(std::vector<RankedLayout>& ranked, int threads) {
  const std::size_t rows = std::min(ranked.size(), kJudgedRows);
  if (rows < 2 || ranked.front().key.value == ranked.front().key.reserved) return;
  const auto made = make_problem(ranked.front().run);
  if (!made) return;
  const Problem& p = made.value();
  std::vector<Sensitivity> of(rows);
  parallel_for(rows, threads, [&](int, std::size_t i) {
    const Run& run = ranked[i].run;
    Problem own = p;
    own.run.pipeline_model_parallel_layout = run.pipeline_model_parallel_layout;
    of[i] = sensitivity(own, run.layout, ranked[i].step_time.value);
  });
  for (std::size_t i = 1; i < rows; ++i)
    ranked[i].slower_half_width = ratio_half_width(p, of[i], of[0]);
}

}  // namespace moecast
