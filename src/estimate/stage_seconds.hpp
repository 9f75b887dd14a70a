#pragma once
/// How long stages take under one set of issue flags, remembered for every distinct content: the
/// stages of all pipelines that share layer tables are made of few.
#include <cstdint>
#include <vector>

#include "estimate/flat_memo.hpp"
#include "estimate/issued_layers.hpp"

namespace moecast {

struct StageCounts;

struct StageSeconds {
  double forward = 0, backward = 0;
};

/// Layers or ends in a row that are one and the same to an IssuedSet.
struct StageRun {
  std::size_t layer = 0;  ///< into its layers
  int count = 0;
};

/// Everything issue() decides for one shard and one set of flags.
class IssuedSet {
 public:
  /// `block`: full recomputation of the first layers of a chunk only.
  IssuedSet(const Problem& p, const ShardTables& shard, const IssueFlags& flags, bool full,
            int block_layers);
  /// The operations of a stage. Valid as long as this is.
  [[nodiscard]] IssuedStage stage(const StageCounts& stage);
  /// One stream; `content` numbers what `stage` holds.
  StageSeconds seconds(int content, const StageCounts& stage, bool drained);
  /// EP overlap: the forward of one stage beside the backward of another.
  double pair_seconds(int forward, const StageCounts& f, int backward, const StageCounts& b);

 private:
  using Sequence = std::vector<StageRun>;
  /// Layers and ends of a stage in forward order. Valid until the next call.
  const Sequence& sequence(int content, const StageCounts& stage);
  [[nodiscard]] Sequence make_sequence(const StageCounts& stage) const;
  [[nodiscard]] StageSeconds one_stream(const Sequence& runs, bool drained) const;
  [[nodiscard]] IssueFlags flags_of(std::size_t layer) const;
  [[nodiscard]] std::size_t layer_of(std::size_t index) const;

  const Problem& p_;
  const ShardTables& shard_;
  IssueFlags flags_;
  bool full_;
  int block_layers_;
  std::size_t classes_, ends_ = 0;
  PairRules rules_;
  /// Classes as the layout says, [classes + class] not recomputed (block), then the ends.
  std::vector<const IssuedMaps*> forward_, backward_;
  std::vector<IssuedLayer> layers_;  ///< once asked
  Sequence runs_;
  std::vector<PairRun> pair_forward_, pair_backward_;
  FlatMemo<StageSeconds> stages_;  ///< by content and drained
  FlatMemo<double> pairs_;         ///< by the two contents
};

/// Equal for equal flags, full recomputation and block_layers (of one shard).
std::uint64_t issue_key(const IssueFlags& flags, bool full, int block_layers);

}  // namespace moecast
