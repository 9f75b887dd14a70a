#pragma once
/// Second pass: exact steps in the order of the bound, in batches of fixed size, until no bound can
/// beat the K-th best.
#include <map>
#include <memory>
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

class Simulation {
 public:
  Simulation(const SearchRequest& r, const Problem& p, const Space& s, int threads);
  /// Simulates those of them that may be among the first K families of all added so far, and maybe
  /// more. Before the `last` come some, of which a few are enough for a limit; the others wait.
  void add(std::vector<Survivor> survivors, bool last = true);
  /// No candidate of a larger value is among the first K families of what was added; infinite when
  /// there are fewer.
  [[nodiscard]] double limit() const;
  /// In the order of the answer; complete up to the K-th family.
  [[nodiscard]] std::vector<Simulated> ranked();

 private:
  void batch(const Survivor* first, std::size_t count);

  const SearchRequest& request_;
  const Space& s_;
  int threads_;
  std::vector<std::unique_ptr<Evaluator>> evaluators_;
  std::vector<Survivor> waiting_;
  std::vector<Simulated> all_;
  std::map<decltype(RankKey::family), double> best_;  ///< of every family
};

/// What both passes find: the first survivors give a ceiling to the scan of the rest.
struct Found {
  Enumeration scan;  ///< its survivors are simulated
  std::vector<Simulated> ranked;
};
Found find_layouts(const SearchRequest& request, const Problem& p, const Space& space, int threads);
/// In the order of the answer, of survivors whose exact steps are known.
std::vector<Simulated> ranked_by(const SearchRequest& request, const Space& space,
                                 const std::vector<Survivor>& survivors,
                                 const std::vector<double>& steps);

}  // namespace moecast
