#pragma once
/// Why a layout is not in the list: the rule that refuses it, the memory that it lacks, the axis
/// that does not have it, the cheaper sibling, the better split of its layers, or the seconds that
/// it takes more than the first.
#include "search/simulate.hpp"

namespace moecast {

Explanation explain_layout(const SearchRequest& request, const Problem& p, const Space& s,
                           const std::vector<RankedLayout>& listed);

/// The point of the space that is this layout, if it has one.
std::optional<Survivor> find_in_space(const Space& s, const Layout& l);

}  // namespace moecast
