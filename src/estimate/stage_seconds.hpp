#pragma once
/// How long stages take under one set of issue flags, remembered for every distinct content: the
/// stages of all pipelines that share layer tables are made of few.
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "estimate/pair_seconds.hpp"

namespace moecast {

struct ShardTables;
struct StageCounts;

struct StageSeconds {
  double forward = 0, backward = 0;
};

/// Everything issue() decides for one shard and one set of flags.
class IssuedSet {
 public:
  /// `block`: full recomputation of the first layers of a chunk only.
  IssuedSet(const Problem& p, const ShardTables& shard, const IssueFlags& flags, bool full,
            int block_layers);
  [[nodiscard]] std::vector<IssuedRun> sequence(const StageCounts& stage) const;
  [[nodiscard]] IssuedStage stage(const StageCounts& stage) const;
  /// One stream; `content` numbers what `stage` holds.
  const StageSeconds& seconds(int content, const StageCounts& stage, bool drained);
  /// EP overlap: the forward of one stage beside the backward of another.
  double pair_seconds(int forward, const StageCounts& f, int backward, const StageCounts& b);
  /// Keeps only what the seconds of stages and pairs are made of.
  void forget_operations();

 private:
  [[nodiscard]] StageSeconds one_stream(const StageCounts& stage, bool drained) const;

  const Problem& p_;
  IssueFlags flags_;
  int block_layers_;
  std::size_t classes_, ends_ = 0;
  std::vector<IssuedLayer> layers_;           ///< classes as the layout says, [classes + class] not
                                              ///< recomputed (block), then the three ends
  std::vector<QueueMap> forward_, backward_;  ///< of layers_
  struct Known {
    bool known[2] = {false, false};  ///< [drained]
    StageSeconds seconds[2];
  };
  std::vector<Known> stages_;                        ///< by content
  std::unique_ptr<PairSeconds> pair_seconds_;        ///< with EP overlap, once asked
  std::unordered_map<std::uint64_t, double> pairs_;  ///< by the two contents
};

/// Equal for equal flags, full recomputation and block_layers (of one shard).
std::uint64_t issue_key(const IssueFlags& flags, bool full, int block_layers);

}  // namespace moecast
