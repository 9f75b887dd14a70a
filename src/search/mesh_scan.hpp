#pragma once
/// One mesh after another: every inner choice against the rules, then memory and bound, one by one.
/// What choices share is computed once per mesh (activations by dispatcher, overlap, recomputation
/// and offload; bounds by dispatcher, overlap and recomputation), so that a candidate is a few
/// sums.
#include <cstdint>
#include <vector>

#include "search/enumerate.hpp"
#include "search/inner_rules.hpp"

namespace moecast {

/// Sums over any set of meshes, in any order.
struct Scan {
  std::uint64_t legal = 0, evaluated = 0, fit = 0;
  std::vector<Survivor> survivors;
  std::vector<double> steps;  ///< of the survivors, where all are asked for
  bool any_fit = false;
  Survivor first_fit;
  Shortfall nearest;
  std::vector<std::uint64_t> broken;  ///< by rule index, then the reasons below

  Scan();
  void add(const Space& s, Scan&& other);
  [[nodiscard]] std::map<std::string, std::uint64_t> rejected() const;
};

class MeshScan {
 public:
  MeshScan(const SearchRequest& request, const Problem& p, const Space& s);
  void scan(std::uint32_t mesh);
  Scan& result() { return result_; }

 private:
  void every_choice(std::uint16_t offload);
  [[nodiscard]] bool leanest_fits(std::uint16_t offload);
  bool refused(Level level, const InnerIndex& i, std::uint64_t candidates);
  void start(std::uint16_t offload);
  void every_recompute(InnerIndex i);
  void assess(const InnerIndex& i);
  [[nodiscard]] double over(const InnerIndex& i, double& reserved);
  [[nodiscard]] double bound(const InnerIndex& i);
  const RankActivations* activations(const InnerIndex& i);
  const ShardTables& shard(const InnerIndex& i, const Layout& l);
  void reject(std::size_t reason, std::uint64_t candidates = 1) {
    result_.broken[reason] += candidates;
  }
  void misses(const InnerIndex& i, double over);
  void simulate();

  const SearchRequest& request_;
  const Problem& p_;
  const Space& s_;
  Evaluator evaluator_;
  Legality legality_;
  InnerRules rules_;
  std::vector<std::size_t> leanest_, every_set_;  ///< recompute choices
  std::vector<std::vector<std::uint16_t>> more_;  ///< per recompute choice: those that do more
  std::vector<GraphUse> graphs_;
  Scan result_;

  std::vector<Layout> layouts_;  ///< scratch of simulate()

  // of the mesh and offload choice at hand
  std::uint32_t mesh_ = 0;
  const MeshTables* tables_ = nullptr;
  std::uint64_t scanned_ = 0;  ///< candidates that the lean pass assessed
  std::vector<char>
      too_big_;  ///< recompute choices that do not fit with the first overlap and graphs
  std::vector<char> pointless_;  ///< recompute choices of which a part fits
  struct Known {
    const ShardTables* shard = nullptr;
    std::vector<RankActivations> ranks;  ///< [variant * fullest ranks + rank]
    std::vector<char> ranks_known;       ///< [variant]
    std::vector<double> bounds;          ///< [variant]; negative: not known
  };
  std::vector<Known> known_;  ///< per dispatcher
};

}  // namespace moecast
