#pragma once
/// Layers as they are issued, and what that does to clocks, shared by all flags that treat a layer
/// alike: a layer reads few of the modules that a layout recomputes or captures.
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "estimate/pair_seconds.hpp"

namespace moecast {

struct ShardTables;

/// One direction of a layer.
struct IssuedMaps {
  QueueMap alone;                             ///< on one stream
  std::unique_ptr<const PairDirection> pair;  ///< with EP overlap
};

/// Of one shard: its classes of layers, then the ends of the model.
class IssuedLayers {
 public:
  /// Valid as long as this is. `layer`: a class, or classes + StageEnd.
  const IssuedMaps& forward(const Problem& p, const ShardTables& shard, std::size_t layer,
                            const IssueFlags& flags);
  const IssuedMaps& backward(const Problem& p, const ShardTables& shard, std::size_t layer,
                             const IssueFlags& flags);
  /// Distinct directions of layers that were issued.
  [[nodiscard]] std::size_t size() const { return known_.size(); }

 private:
  const IssuedMaps& maps(const Problem& p, const ShardTables& shard, std::size_t layer,
                         const IssueFlags& flags, bool backward);
  IssueFlags read(const ShardTables& shard, std::size_t layer, const IssueFlags& flags);

  /// Modules that recomputation, and those that graphs, can act on.
  struct Reads {
    std::uint16_t recompute = 0;
    std::uint8_t graph = 0;
    bool shared = false;
  };
  std::vector<Reads> reads_;                                          ///< per layer
  std::vector<IssuedOp> issued_;                                      ///< scratch
  std::unique_ptr<PairNodes> nodes_ = std::make_unique<PairNodes>();  ///< stays where it is
  std::unordered_map<std::uint64_t, IssuedMaps> known_;
};

const LayerOps& operations_of(const ShardTables& shard, std::size_t layer);

}  // namespace moecast
