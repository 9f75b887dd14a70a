#pragma once
/// EP overlap, fast: the seconds of overlapped_time() from maps of clocks. A node of the pair
/// schedule (all its operations on one stream) sends the clocks of the host and of its stream to
/// the later of two old ones, each plus a constant; a pair of layers is a few such nodes, however
/// many operations they hold. The constants depend on how much the kernels are slowed by what runs
/// beside them: nearly always along a line, of which the ends are kept.
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "estimate/chunk_time.hpp"
#include "estimate/flat_memo.hpp"

namespace moecast {

/// What all pairs under one set of flags share.
struct PairRules {
  PairRules(const Problem& p, const IssueFlags& flags);
  double compute_per_share, contention_comm, host_factor, sync_cost, kernel_floor;
  bool single_queue, delay;
};

/// In the order of Megatron's schedule of a pair; kWhole: everything on the compute stream.
enum PairNode : std::uint8_t {
  kCombineNode,
  kAttentionNode,
  kExpertsNode,
  kDispatchNode,
  kExpertsWgrad,
  kAttentionWgrad,
  kWhole,
  kPairNodes
};

/// What a node does to the clocks.
struct PairMap {
  struct Clocks {
    double host = 0, stream = 0, started = 0;
  };
  bool any = false;
  Clocks from_host, from_stream;
};

struct PairOp {
  double gpu, host, first;  ///< seconds; `first`: of the host until the first kernel is launched
  bool sync, exchange;
  bool operator==(const PairOp&) const = default;
};

struct PairNodeMaps {
  PairMap least, most;       ///< alone, and beside exchanges all the time
  std::vector<PairOp> bent;  ///< what it holds, where the maps between are not on a line
};

/// Nodes of equal operations, under rules that differ in `delay` at most, are one: few flags touch
/// all nodes of a layer.
class PairNodes {
 public:
  /// Valid as long as this is.
  const PairNodeMaps& of(const PairRules& rules, const std::vector<PairOp>& ops, PairNode which);
  std::array<std::vector<PairOp>, kWhole> lists;  ///< scratch

 private:
  struct Known {
    std::vector<PairOp> ops;
    bool comm;
    PairNodeMaps maps;
    const Known* next;  ///< of the same hash
  };
  std::deque<Known> known_;
  FlatMemo<const Known*> by_hash_;
};

/// One direction of a layer.
class PairDirection {
 public:
  PairDirection(const PairRules& rules, const std::vector<IssuedOp>& ops, bool backward,
                PairNodes& nodes);
  /// `slow`: of kernels on the compute stream, against alone; `share`: of the slowest that they can
  /// be, 0 to 1. Without a single queue, nothing is said of what started.
  void at(const PairRules& rules, PairNode node, double slow, double share, PairMap& map) const;
  [[nodiscard]] double compute() const { return compute_; }    ///< GPU seconds
  [[nodiscard]] double exchange() const { return exchange_; }  ///< GPU seconds

 private:
  PairNodes& known_;
  std::array<const PairNodeMaps*, kWhole> nodes_;
  mutable const PairNodeMaps* whole_ = nullptr;  ///< once asked: few layers have no partner
  std::vector<PairOp> ops_;
  double compute_ = 0, exchange_ = 0;
};

/// Layers in a row that are issued alike.
struct PairRun {
  const PairDirection* layer = nullptr;
  int count = 0;
};
/// Forward of one stage beside the backward of another, both in the order that they run in.
double pair_seconds(const PairRules& rules, std::span<const PairRun> forward,
                    std::span<const PairRun> backward);

}  // namespace moecast
