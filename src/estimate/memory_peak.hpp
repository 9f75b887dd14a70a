#pragma once
/// The peak of every pipeline rank: what is held all the time, plus the largest of the named
/// moments (bench/memory_probe records what lives at each). Transients of different moments are
/// never added.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "estimate/tables.hpp"

namespace moecast {

struct RankPeak {
  double weights = 0, gradients = 0, optimizer = 0, dispatcher = 0, cuda_graph = 0, workspace = 0;
  double stored = 0;     ///< activations alive at the peak, without the moment's own bytes
  double transient = 0;  ///< the moment's own bytes
  double host = 0;
  double first_step = 0;     ///< allocated peak of step 1: moments are created at its end
  double at_rest = 0;        ///< allocated between steps
  double before_graphs = 0;  ///< allocated peak of the steps before graphs are captured
  const char* moment = "";
  const char* formula = "";  ///< of the transient
  /// What is there all the time, but for the graphs' buffers.
  [[nodiscard]] double held() const {
    return weights + gradients + optimizer + dispatcher + workspace;
  }
  [[nodiscard]] double allocated() const { return held() + (stored + transient) + cuda_graph; }
};

/// What a layout keeps of one layer, and what it needs for a moment.
struct LayerBytes {
  double stored;     ///< on the GPU, for every microbatch in flight
  double offloaded;  ///< moved to the host
  double rebuild;    ///< transient of recomputation in this layer's backward
};

/// What a layout's CUDA graphs do to memory.
struct GraphUse {
  std::uint8_t modules = 0;  ///< whose activations live in graph pools (0xff: all)
  bool whole = false;        ///< one graph of the whole iteration, which keeps its peak
};
GraphUse graph_use(const Layout& l);

/// A rank's peak before any graph is captured, and what graphs ask about it.
struct RankActivations {
  RankPeak peak;
  double in_flight = 0;       ///< stored activations of all microbatches alive
  double kept = 0;            ///< bytes that wait between steps
  std::size_t vector = 0;     ///< of Alive: where in_flight is reached
  double optimizer_step = 0;  ///< transient of the optimizer step
  double graph_buffers = 0;   ///< static buffers of graphs that capture moe_preprocess
  double crossing = 0;        ///< blocks of two streams that a captured iteration does not reuse
};
/// True when the optimizer step may be the worst moment for what graph pools keep of `pinned`.
inline bool asks_graph_pools(const RankActivations& a, GraphUse g) {
  return !g.whole && g.modules != 0 &&
         a.in_flight + a.optimizer_step > a.peak.stored + a.peak.transient;
}
/// Bytes that are alive in the optimizer step beside its own.
inline double kept_by_graphs(const RankActivations& a, GraphUse g, double pinned) {
  return g.whole ? a.peak.stored + a.peak.transient : std::max(a.kept, pinned);
}
inline double graph_buffers(const RankActivations& a, GraphUse g) {
  const bool captured = (g.modules & mask(GraphModule::moe_preprocess)) != 0;
  return (captured ? a.graph_buffers : 0) + (g.whole ? a.crossing : 0);
}
/// The rank's peak with graphs that pin `pinned` bytes.
inline double allocated(const RankActivations& a, GraphUse g, double pinned) {
  const double kept = kept_by_graphs(a, g, pinned) + a.optimizer_step;
  return a.peak.held() + std::max(a.peak.stored + a.peak.transient, kept) + graph_buffers(a, g);
}

/// Memory of one layout: what its ranks share is computed once. Graphs come last, so that a search
/// asks about all of them at once.
class LayoutMemory {
 public:
  LayoutMemory(const Problem& p, const Layout& l, const ShardTables& shard, const MeshTables& mesh);
  [[nodiscard]] RankActivations activations(int rank) const;
  /// Adds to the peak what graphs hold.
  [[nodiscard]] RankPeak with_graphs(int rank, const RankActivations& a, GraphUse graphs) const;
  /// Activations in graph pools, which keep what they captured; full recomputation keeps less.
  [[nodiscard]] double pinned_by_graphs(int rank, std::uint8_t modules) const;
  /// What a layer of the class keeps, where all of them are treated alike().
  [[nodiscard]] double kept_of(std::size_t cls) const {
    return full_ ? whole_[cls].stored : selective_[cls].stored;
  }
  [[nodiscard]] bool alike() const { return !layered_; }
  /// More than that in the backward of such a layer.
  [[nodiscard]] double backward_of(std::size_t cls) const {
    return backward_transient(cls, (full_ ? whole_[cls] : selective_[cls]).rebuild).bytes;
  }
  /// Per recomputation set: kept_of and backward_of its layers, [class * sets + set].
  struct Sets {
    std::vector<double> kept, backward;
  };
  /// For other recomputation sets that treat layers alike(), side by side: no more than the rank
  /// allocates without graphs.
  void least_allocated(int rank, const Sets& sets, std::span<double> least) const;
  /// `detail` (optional) receives the tree of terms.
  [[nodiscard]] RankPeak rank_peak(int rank, MemoryItem* detail = nullptr) const;

 private:
  struct Moment;
  /// Equal layers of a stage that the layout treats alike.
  struct Piece {
    const LayerBytes& bytes;
    bool offloaded_whole;  ///< layer offload moves all of it
    bool recomputed_whole;
    int cls, count;
    [[nodiscard]] double stored() const { return offloaded_whole ? 0 : bytes.stored; }
    [[nodiscard]] double offloaded() const {
      return bytes.offloaded + (offloaded_whole ? bytes.stored : 0);
    }
  };
  /// Calls f(piece) from the last layer to the first.
  template <typename F>
  void backwards(const StageCounts& stage, F f) const;
  [[nodiscard]] double chunk(const StageCounts& stage) const;
  [[nodiscard]] double chunk_offloaded(const StageCounts& stage) const;
  [[nodiscard]] bool overlap() const { return l_.overlap_moe_expert_parallel_comm; }
  [[nodiscard]] const Alive& alive() const {
    return overlap() ? mesh_.pipeline->alive_overlap : mesh_.pipeline->alive;
  }
  [[nodiscard]] const InFlight& in_flight() const {
    return overlap() ? mesh_.pipeline->in_flight_overlap : mesh_.pipeline->in_flight;
  }
  void stored(int rank, RankActivations& a) const;
  void stored_by_chunk(int rank, RankActivations& a) const;
  [[nodiscard]] double pinned(int rank, const std::array<double, kMaxClasses>& captured) const;
  [[nodiscard]] double pinned_by_chunk(int rank,
                                       const std::array<double, kMaxClasses>& captured) const;
  void moments(const StageCounts& last, const RankState& state, RankActivations& a) const;
  void layers_backward(const StageCounts& last, double stored, Moment& best, double& pair) const;
  [[nodiscard]] double between_steps(int rank) const;
  [[nodiscard]] double crossing_streams(int rank) const;
  [[nodiscard]] bool leaves_graph(bool recomputed_whole) const;
  [[nodiscard]] Transient backward_transient(std::size_t cls, double rebuild) const;
  [[nodiscard]] double mtp_input() const { return 12 * shard_.dims.h * shard_.dims.n; }
  void add_detail(MemoryItem& tree, int rank, const RankPeak& peak, const RankActivations& a) const;
  void add_layers(MemoryItem& tree, const StageCounts& stage, int chunk, int microbatches) const;

  const Problem& p_;
  const Layout& l_;
  const ShardTables& shard_;
  const MeshTables& mesh_;
  bool full_ = false;
  bool layered_ = false;  ///< layers of one class are not all treated alike
  int recomputed_ = 0;    ///< layers of a chunk, from its first, that full recomputation repeats
  std::uint16_t recompute_ = 0;
  std::array<LayerBytes, kMaxClasses> selective_, whole_;  ///< as many as the model has
};

/// Reserved = allocated x (1 + fragmentation) + what lives outside the allocator.
double reserved_bytes(const Problem& p, const MeshTables& mesh, double allocated);

}  // namespace moecast
