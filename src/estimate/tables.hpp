#pragma once
/// What many layouts share, computed once: per shard key the priced work and memory of every layer
/// class; per mesh the pipeline plan, parameters and in-flight counts. The evaluator reads knobs of
/// a table only through that table's key.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimate/chunk_time.hpp"
#include "estimate/flat_memo.hpp"
#include "estimate/layer_memory.hpp"
#include "estimate/layer_ops.hpp"
#include "estimate/rank_params.hpp"
#include "estimate/rank_state.hpp"
#include "estimate/schedule.hpp"
#include "estimate/stage_seconds.hpp"
#include "moecast/layout.hpp"

namespace moecast {

inline constexpr std::size_t kMaxClasses = kMaxLayerClasses;

/// GPU seconds of an operation list by where they can hide.
struct OpSums {
  double compute = 0;  ///< compute stream, without `side` and `shared`
  double side =
      0;  ///< compute that EP overlap puts on the communication stream (permute, residual)
  double shared = 0;  ///< shared experts, with their collectives
  double ep = 0;      ///< dispatch and combine, and other collectives of theirs
  double other = 0;   ///< TP and CP collectives
};
OpSums sum_ops(const std::vector<Op>& ops, std::uint16_t only_recomputed_by = 0);

/// A layer class under one recompute and offload set.
struct ClassUnder {
  double stored = 0, offloadable = 0;
  double rebuild = 0;    ///< transient of selective recomputation in this layer's backward
  mutable OpSums again;  ///< what recomputation repeats in backward; once asked
  mutable bool again_known = false;
};

struct ClassTable {
  LayerOps ops;
  LayerMemory memory;
  OpSums forward, backward;
  /// Valid until the next call, as what again() returns.
  const ClassUnder& under(std::uint16_t recompute, std::uint16_t offload) const;
  const OpSums& again(std::uint16_t recompute, std::uint16_t offload) const;

 private:
  mutable FlatMemo<ClassUnder> under_;  ///< filled as asked; one evaluator per thread
};

struct ShardTables {
  Dims dims;
  bool priced = false;  ///< else there are no operations yet: memory needs none
  std::vector<ClassTable> classes;
  LayerOps embedding, head, mtp_extra;
  OpSums embedding_forward, embedding_backward, head_forward, head_backward, mtp_forward,
      mtp_backward;
  HeadMemory head_memory;
  double dispatcher_bytes = 0;  ///< persistent buffers of the dispatcher
  // filled as asked; one evaluator per thread
  mutable IssuedLayers issued_layers;
  mutable std::unordered_map<std::uint64_t, std::unique_ptr<IssuedSet>> issued;
  mutable std::vector<std::vector<StageRun>> sequences;  ///< by content of a stage
};
ShardTables make_shard_memory(const Problem& p, const ShardKey& k);
void price_shard(const Problem& p, const ShardKey& k, KnownBusy& known, ShardTables& tables);
inline ShardTables make_shard_tables(const Problem& p, const ShardKey& k) {
  KnownBusy none;
  ShardTables tables = make_shard_memory(p, k);
  price_shard(p, k, none, tables);
  return tables;
}

/// Equal layers in a row.
struct LayerRun {
  int cls = 0, count = 0;
  auto operator<=>(const LayerRun&) const = default;
};

/// What one stage holds, by class.
struct StageCounts {
  std::vector<int> layers;     ///< per class, decoder and MTP
  std::vector<LayerRun> runs;  ///< in forward order, MTP last
  int total = 0;               ///< layers of all classes
  int mtp_depths = 0;
  bool embedding = false, loss = false;
  auto operator<=>(const StageCounts&) const = default;
};

/// Microbatches alive: per rank the maximal vectors (a count per chunk) that its order passes.
class Alive {
 public:
  explicit Alive(int vpp) : vpp_(vpp) {}
  void add_rank(const std::vector<std::vector<int>>& vectors);
  [[nodiscard]] std::size_t size(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return (first_[r + 1] - first_[r]) / static_cast<std::size_t>(vpp_);
  }
  [[nodiscard]] const int* vector(int rank, std::size_t i) const {
    return &counts_[first_[static_cast<std::size_t>(rank)] + i * static_cast<std::size_t>(vpp_)];
  }
  /// True when every vector of `rank` stays below one of `other`.
  [[nodiscard]] bool below(int rank, int other) const;

 private:
  int vpp_;
  std::vector<int> counts_;
  std::vector<std::size_t> first_{0};
};

/// Layers alive on a rank, by class, and MTP depths alive: a row for every vector of Alive that no
/// other row exceeds in everything.
struct InFlight {
  struct Row {
    std::array<double, kMaxClasses> layers{};
    double mtp_depths = 0;
    std::size_t vector = 0;  ///< of Alive
  };
  std::vector<std::vector<Row>> rows;  ///< per rank
  std::vector<double> moe_layers;      ///< per rank: of all MoE classes together, largest
};

/// Kinds of work that stages are made of: the three ends of the model, then the layer classes.
enum StageEnd : std::uint8_t { kEmbedding, kHead, kMtpExtra, kStageEnds };
using Work = std::array<double, kStageEnds + kMaxClasses>;  ///< counts or seconds, by kind

/// What follows from the pipeline's shape alone: who holds what, and what is in flight.
struct Pipeline {
  PipelinePlan plan;
  std::vector<StageCounts> stages;  ///< [rank * vpp + chunk]
  std::vector<int> content;         ///< per stage: number of its contents; equal stages share one,
                                    ///< in all pipelines of a MeshCache
  std::vector<RankContents> held;   ///< per rank
  std::vector<int> kind;  ///< per rank: ranks with equal chunks share one; rank 0 has its own
  Alive alive, alive_overlap;
  /// Ranks of which one is the fullest, whatever the layout: a later rank with the same layers and
  /// no more in flight is left out.
  std::vector<int> fullest;
  InFlight in_flight, in_flight_overlap;
  std::vector<std::array<double, kMaxClasses>> layers;  ///< per rank, by class
  /// Ranks of which one is the busiest: the last of each kind, with its work per microbatch, and
  /// the work of the first chunks of the ranks before it.
  struct Busy {
    Work work{}, before{};
  };
  std::vector<Busy> busiest;
  /// No schedule of `microbatches` is faster: the busy time of a rank between the first forward
  /// that reaches it and the last backward that leaves it.
  [[nodiscard]] double busy_bound(int microbatches, const Work& seconds) const;
  /// Stages of equal contents, and equal pairs of a rank's stages, take equal times.
  struct Distinct {
    std::vector<int> stages;                                 ///< the first stage of each
    std::vector<std::pair<std::size_t, std::size_t>> pairs;  ///< forward, backward: into `stages`
    std::vector<std::size_t> of_stage;                       ///< per stage: into `stages`
    std::vector<std::size_t> of_pair;             ///< as ScheduleTimes::both: into `pairs`
    std::vector<double> stage_count, pair_count;  ///< how often each is there
  } distinct;
  explicit Pipeline(int vpp) : alive(vpp), alive_overlap(vpp) {}
};

struct MeshTables {
  Layout mesh;  ///< the layout with everything reset that these tables do not read
  std::shared_ptr<const Pipeline> pipeline;
  std::vector<RankParams> params;  ///< per pp rank
  std::vector<RankState> states;
  std::vector<double> workspace;  ///< per pp rank: bytes of libraries' workspaces
  double outside = 0;             ///< bytes outside the allocator
  int microbatches = 1;
  double least_tail = 0;  ///< optimizer and fixed time of a step: after every schedule
  [[nodiscard]] const std::vector<StageCounts>& stages() const { return pipeline->stages; }
  [[nodiscard]] const PipelinePlan& plan() const { return pipeline->plan; }
};
/// The knobs that mesh tables read; the rest at its default.
Layout mesh_of(const Layout& l);
/// Pieces of mesh tables that depend on fewer knobs still.
struct MeshCache {
  std::map<std::tuple<int, int, PipelineSplit, int, int>, std::shared_ptr<const Pipeline>>
      pipelines;  ///< by pp, vpp, split, microbatches, group
  std::map<std::tuple<int, int, int, int>, std::pair<Alive, Alive>>
      alive;  ///< without and with EP overlap, by pp, vpp, microbatches, group
  std::map<std::tuple<int, int, int>, ParamTables> params;  ///< by tp, ep, etp
  std::map<StageCounts, int> contents;                      ///< numbers of what stages hold
};
/// `plan`: instead of what the layout's split says. `into` may hold another mesh's, whose memory is
/// used again; after a problem it holds none.
Diagnostics fill_mesh_tables(const Problem& p, const Layout& l, MeshCache& cache,
                             const PipelinePlan* plan, MeshTables& into);
Result<MeshTables> make_mesh_tables(const Problem& p, const Layout& l, MeshCache& cache,
                                    const PipelinePlan* plan = nullptr);
inline Result<MeshTables> make_mesh_tables(const Problem& p, const Layout& l) {
  MeshCache none;
  return make_mesh_tables(p, l, none);
}
ScheduleShape schedule_shape(const Layout& l, int microbatches);

}  // namespace moecast
