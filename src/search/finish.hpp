#pragma once
/// What makes an answer of the rows: the same for a whole search and for merged parts.
#include "moecast/search.hpp"

namespace moecast {

/// Sorts the compared rows by what their improved splits reach, puts them into the Pareto front,
/// lists the first `top`, and says which of them the error bar does not tell apart from the first.
void finish(SearchResult& result, int top, int threads);

}  // namespace moecast
