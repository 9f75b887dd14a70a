#pragma once
/// One mesh after another: every inner choice against the rules, then memory and bound, one by one.
/// What choices share is computed once per mesh (memory: mesh_memory.hpp; bounds by dispatcher,
/// overlap and recomputation), and what is refused is counted a word of recompute choices at a
/// time.
#include <cstdint>
#include <limits>
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
  void add(const Space& s, const Scan& other);
  [[nodiscard]] std::map<std::string, std::uint64_t> rejected() const;
};

class MeshScan {
 public:
  MeshScan(const SearchRequest& request, const Problem& p, const Space& s);
  void scan(std::uint32_t mesh);
  Scan& result() { return result_; }
  /// Moves what survived so far behind `to`.
  void give_survivors(std::vector<Survivor>& to);
  /// Later survivors of a larger least_value() are counted only.
  void keep_up_to(double value) { ceiling_ = value; }

 private:
  void every_choice(std::uint16_t offload);
  [[nodiscard]] bool leanest_fits(std::uint16_t offload);
  bool refused(Level level, const InnerIndex& i, std::uint64_t candidates);
  void start(std::uint16_t offload);
  void every_recompute(InnerIndex i);
  void find_surviving(InnerIndex i, const InnerRules::Refused& refused);
  void count(const InnerRules::Refused& refused, const ChoiceBits* misses);
  void survives(const InnerIndex& i);
  [[nodiscard]] double bound(const InnerIndex& i);
  [[nodiscard]] bool fits(const InnerIndex& i);
  const ShardTables& shard(const InnerIndex& i);
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
  MeshMemory memory_;
  std::vector<std::size_t> leanest_, every_set_;  ///< recompute choices
  std::vector<ChoiceBits> every_bit_;             ///< all recompute choices
  std::vector<std::vector<ChoiceBits>> more_;     ///< per choice: later ones that do more
  Scan result_;
  std::uint64_t first_fit_key_ = ~std::uint64_t{0};  ///< of result_.first_fit
  double ceiling_ = std::numeric_limits<double>::infinity();

  std::vector<Layout> layouts_;  ///< scratch of simulate()

  // of the mesh and offload choice at hand
  std::uint32_t mesh_ = 0;
  Layout layout_;  ///< of the mesh, inner knobs neutral
  std::uint64_t group_ = 0;
  const MeshTables* tables_ = nullptr;
  std::uint64_t scanned_ = 0;          ///< candidates that the lean pass assessed
  std::vector<ChoiceBits> too_big_;    ///< do not fit with the first overlap and graphs
  std::vector<ChoiceBits> pointless_;  ///< a part of them fits
  std::vector<std::uint16_t> surviving_;
  /// Where the last two were found.
  struct {
    bool any = false;
    InnerIndex at;
    int refused = -1;
  } found_;
  struct Known {
    const ShardTables* shard = nullptr;
    bool priced = false;
    std::vector<double> bounds;  ///< [variant]; negative: not known
  };
  std::vector<Known> known_;  ///< per dispatcher
};

}  // namespace moecast
