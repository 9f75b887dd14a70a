#pragma once
/// EP overlap, fast: the seconds of overlapped_time() from maps of clocks. A node of the pair
/// schedule (all its operations on one stream) sends the clocks of the host and of its stream to
/// the later of two old ones, each plus a constant; a pair of layers is a few such nodes, however
/// many operations they hold.
#include <array>
#include <vector>

#include "estimate/chunk_time.hpp"

namespace moecast {

/// Layers and ends of a stage in forward order: index into IssuedSet::layers, and how many in a
/// row.
struct IssuedRun {
  std::size_t layer = 0;
  int count = 0;
};

class PairSeconds {
 public:
  PairSeconds(const Problem& p, const IssueFlags& flags, const std::vector<IssuedLayer>& layers);
  /// Forward of one stage beside the backward of another, both in forward order.
  double seconds(const std::vector<IssuedRun>& forward, const std::vector<IssuedRun>& backward);

 private:
  /// In the order of Megatron's schedule of a pair; `all`: everything on the compute stream.
  enum Node : std::uint8_t {
    combine,
    attention,
    experts,
    dispatch,
    experts_wgrad,
    attention_wgrad
  };
  static constexpr std::size_t kNodes = 6, kWhole = kNodes, kLists = kNodes + 1;
  struct Op {
    double gpu, host, first;  ///< seconds; `first`: of the host until the first kernel is launched
    bool sync, exchange;
  };
  struct Clocks {
    double host, stream, started;
  };
  struct Map {
    bool any = false;
    Clocks from_host{}, from_stream{};
  };
  struct Direction {
    std::array<std::vector<Op>, kLists> ops;
    std::array<Map, kLists> maps;
    double compute = 0, exchange = 0;  ///< GPU seconds
    double slow = 0;                   ///< of `maps`; 0: not made
  };
  struct State {
    double host = 0, free[2] = {0, 0}, done[2] = {0, 0}, started = 0;
  };

  [[nodiscard]] Direction direction(const std::vector<IssuedOp>& ops, bool backward) const;
  [[nodiscard]] Clocks run(const std::vector<Op>& ops, Clocks at, double slow,
                           double slow_exchange) const;
  const Direction& mapped(Direction& d) const;
  void node(State& s, const Map& m, int direction, int stream, bool ordered) const;
  void pair(State& s, const Direction& f, const Direction& b) const;
  void alone(State& s, const Direction& d, int direction) const;

  double compute_per_share_, contention_comm_, host_factor_, sync_cost_, kernel_floor_;
  bool single_queue_, delay_;
  double slow_ = 1, slow_exchange_ = 1;  ///< of the stages at hand
  std::vector<Direction> forward_, backward_;
};

}  // namespace moecast
