#pragma once
/// The peak of every pipeline rank: what is held all the time, plus the largest of the named moments (memory_peaks 2.24). Transients of
/// different moments are never added.
#include "estimate/tables.hpp"

namespace moecast {

struct RankPeak {
  double weights = 0, gradients = 0, optimizer = 0, dispatcher = 0, cuda_graph = 0, workspace = 0;
  double stored = 0;      ///< activations alive at the peak, without the moment's own bytes
  double transient = 0;   ///< the moment's own bytes
  double host = 0;
  const char* moment = "";
  [[nodiscard]] double allocated() const {
    return weights + gradients + optimizer + dispatcher + cuda_graph + workspace + stored + transient;
  }
};

/// `detail` (optional) receives the tree of terms.
RankPeak rank_peak(const Problem& p, const Layout& l, const ShardTables& shard, const MeshTables& mesh, int rank,
                   MemoryItem* detail = nullptr);
/// Reserved = allocated x (1 + fragmentation) + what lives outside the allocator.
double reserved_bytes(const Problem& p, const Layout& l, double allocated);

}  // namespace moecast
