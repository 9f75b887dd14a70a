#pragma once
/// The wall by ablation: the step time that would be saved if a resource were free. One definition
/// for estimate and search.
///   compute: every compute kernel costs nothing; communication: every transfer (EP, TP, CP, PP,
///   DP) costs nothing; host: no launch, no sync, no per-step host work; memory: no recomputation
///   and no offload are needed. A layout that does not fit has the memory wall. Otherwise the
///   largest saving decides.
#include "estimate/evaluate.hpp"

namespace moecast {

struct WallVerdict {
  Wall wall = Wall::compute;
  std::vector<std::pair<std::string, Seconds>> saved;
};
WallVerdict find_wall(const Problem& p, const Layout& l, const Outcome& outcome);

}  // namespace moecast
