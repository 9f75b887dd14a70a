#pragma once
/// Which ranked layouts the error bar cannot tell apart from the first.
#include "moecast/search.hpp"

namespace moecast {

/// Rows that are judged: each costs a step for every parameter that was fitted.
inline constexpr std::size_t kJudgedRows = 100;

/// Sets `slower_half_width` of the rows behind the first: half of the 90 % interval of the log of
/// their time over the first's, whose parameters are the same. Nothing where the rank is no time.
void judge_ties(std::vector<RankedLayout>& ranked, int threads);

}  // namespace moecast
