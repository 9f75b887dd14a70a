#pragma once
/// The peak of every pipeline rank: what is held all the time, plus the largest of the named
/// moments (memory_peaks 2.24). Transients of different moments are never added.
#include <array>

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
  [[nodiscard]] double allocated() const {
    return weights + gradients + optimizer + dispatcher + cuda_graph + workspace + stored +
           transient;
  }
};

/// What a layout keeps of one layer, and what it needs for a moment.
struct LayerBytes {
  double stored = 0;     ///< on the GPU, for every microbatch in flight
  double offloaded = 0;  ///< moved to the host
  double rebuild = 0;    ///< transient of recomputation in this layer's backward
  double captured = 0;   ///< part of stored that graph pools hold
};

/// Memory of one layout: what its ranks share is computed once.
class LayoutMemory {
 public:
  LayoutMemory(const Problem& p, const Layout& l, const ShardTables& shard, const MeshTables& mesh);
  /// `detail` (optional) receives the tree of terms.
  [[nodiscard]] RankPeak rank_peak(int rank, MemoryItem* detail = nullptr) const;

 private:
  [[nodiscard]] LayerBytes layer(const StageCounts& stage, std::size_t index) const;
  [[nodiscard]] double chunk(const StageCounts& stage) const;
  [[nodiscard]] double chunk_offloaded(const StageCounts& stage) const;
  void moments(const StageCounts& last, double stored, const RankState& state, double captured,
               double kept, RankPeak& peak) const;
  [[nodiscard]] double rebuilt_selectively(const LayerMemory& m) const;
  [[nodiscard]] double between_steps(const StageCounts& stage) const;
  [[nodiscard]] bool recomputed_whole(std::size_t index) const;
  [[nodiscard]] bool leaves_graph(std::size_t index) const;
  [[nodiscard]] double captured(const StageCounts& stage) const;
  [[nodiscard]] double graph_buffers(const StageCounts& stage) const;
  [[nodiscard]] double mtp_inputs(const StageCounts& stage) const;
  void add_detail(MemoryItem& tree, int rank, const RankPeak& peak, double in_flight,
                  const std::vector<int>& alive) const;
  void add_layers(MemoryItem& tree, const StageCounts& stage, int chunk, int microbatches) const;

  const Problem& p_;
  const Layout& l_;
  const ShardTables& shard_;
  const MeshTables& mesh_;
  bool full_ = false,
       layered_ =
           false;  ///< full recomputation; per-layer decisions (full, block or layer offload)
  std::uint16_t recompute_ = 0;
  std::uint8_t graph_ = 0;  ///< modules whose activations live in graph pools (0xff: all)
  double dispatcher_ = 0;
  std::array<LayerBytes, kMaxClasses> selective_{}, recomputed_{};
};

/// Reserved = allocated x (1 + fragmentation) + what lives outside the allocator.
double reserved_bytes(const Problem& p, const Layout& l, double allocated);

}  // namespace moecast
