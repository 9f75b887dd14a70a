#pragma once
/// What many layouts share, computed once: per shard key the priced work and memory of every layer
/// class; per mesh the pipeline plan, parameters and in-flight counts. The evaluator reads knobs of
/// a table only through that table's key.
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimate/chunk_time.hpp"
#include "estimate/layer_memory.hpp"
#include "estimate/layer_ops.hpp"
#include "estimate/rank_params.hpp"
#include "estimate/rank_state.hpp"
#include "estimate/schedule.hpp"
#include "moecast/layout.hpp"

namespace moecast {

inline constexpr std::size_t kMaxClasses = kMaxLayerClasses;

/// GPU seconds of an operation list by where they can hide.
struct OpSums {
  double compute = 0;  ///< compute stream, without `side` and `shared`
  double side =
      0;  ///< compute that EP overlap puts on the communication stream (unpermute, residual)
  double shared = 0;  ///< shared experts
  double ep = 0;      ///< dispatch and combine
  double other = 0;   ///< TP and CP collectives
};
OpSums sum_ops(const std::vector<Op>& ops, std::uint16_t only_recomputed_by = 0);

/// A layer class under one recompute and offload set.
struct ClassUnder {
  std::uint16_t recompute = 0, offload = 0;
  double stored = 0, offloadable = 0;
  OpSums again;  ///< what recomputation repeats in backward
};

struct ClassTable {
  LayerOps ops;
  LayerMemory memory;
  OpSums forward, backward;
  const ClassUnder& under(std::uint16_t recompute, std::uint16_t offload) const;

 private:
  mutable std::vector<std::unique_ptr<ClassUnder>>
      under_;  ///< filled as asked; one evaluator per thread
};

struct ShardTables {
  Dims dims;
  std::vector<ClassTable> classes;
  LayerOps embedding, head, mtp_extra;
  OpSums embedding_forward, embedding_backward, head_forward, head_backward, mtp_forward,
      mtp_backward;
  HeadMemory head_memory;
};
ShardTables make_shard_tables(const Problem& p, const ShardKey& k);

/// What one stage holds, by class.
struct StageCounts {
  std::vector<int> layers;  ///< per class, decoder and MTP
  std::vector<int> order;   ///< class of each layer in forward order, MTP last
  int mtp_depths = 0;
  bool embedding = false, loss = false;
  bool operator==(const StageCounts&) const = default;
};

struct MeshTables {
  Layout mesh;  ///< the layout with everything reset that these tables do not read
  PipelinePlan plan;
  std::vector<StageCounts> stages;  ///< [rank * vpp + chunk]
  std::vector<int> content;         ///< per stage: number of its contents; equal stages share one
  std::vector<RankParams> params;   ///< per pp rank
  std::vector<RankState> states;
  int microbatches = 1;
  double least_tail = 0;  ///< optimizer and fixed time of a step: after every schedule
  std::vector<std::vector<std::vector<int>>> alive, alive_overlap;  ///< per rank: maximal vectors
};
/// The knobs that mesh tables read; the rest at its default.
Layout mesh_of(const Layout& l);
/// Pieces of mesh tables that depend on fewer knobs still.
struct MeshCache {
  using Alive = std::vector<std::vector<std::vector<int>>>;
  std::map<std::tuple<int, int, PipelineSplit>, PipelinePlan> plans;  ///< by pp, vpp
  std::map<std::tuple<int, int, int, int>, std::pair<Alive, Alive>>
      alive;  ///< by pp, vpp, microbatches, group
};
Result<MeshTables> make_mesh_tables(const Problem& p, const Layout& l, MeshCache& cache);
inline Result<MeshTables> make_mesh_tables(const Problem& p, const Layout& l) {
  MeshCache none;
  return make_mesh_tables(p, l, none);
}
ScheduleShape schedule_shape(const Layout& l, int microbatches);

}  // namespace moecast
