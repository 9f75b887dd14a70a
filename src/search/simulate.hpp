#pragma once
/// Second pass: exact steps in the order of the bound, in batches of fixed size, until no bound can
/// beat the K-th best.
#include <vector>

#include "search/enumerate.hpp"

namespace moecast {

struct Simulated {
  Survivor candidate;
  RankKey key;
};

/// Candidates that differ only in graph scope, delayed wgrad or memory measures are one family, so
/// that ten rows are ten layouts.
RankKey key_of(const SearchRequest& r, const Space& s, const Survivor& c, double step);

/// In the order of the answer; complete up to the K-th family.
std::vector<Simulated> simulate(const SearchRequest& request, const Problem& p, const Space& space,
                                int threads, std::vector<Survivor> survivors);
/// The same, of survivors whose exact steps are known.
std::vector<Simulated> ranked_by(const SearchRequest& request, const Space& space,
                                 const std::vector<Survivor>& survivors,
                                 const std::vector<double>& steps);

}  // namespace moecast
