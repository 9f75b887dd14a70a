#pragma once
/// What moves beside a stage (offloaded activations, FSDP's gathers and reduce-scatters), as long
/// as its own work hides it.
#include <algorithm>

#include "estimate/tables.hpp"

namespace moecast {

struct Transfers {
  double offload = 0, fsdp = 0;  ///< seconds
  [[nodiscard]] double over(double duration) const { return std::max({duration, offload, fsdp}); }
  [[nodiscard]] Spent over(Spent s) const;
};
struct StageTransfers {
  Transfers forward, backward, both;
};
StageTransfers stage_transfers(const Problem& p, const Layout& l, const ShardTables& shard,
                               const StageCounts& stage);

}  // namespace moecast
