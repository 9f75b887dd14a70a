#pragma once
/// THE evaluator: estimate, search, check of fit, advice and validation all call evaluate(). Fit,
/// then bound, then exact: early returns of the same function.
#include <memory>
#include <span>
#include <unordered_map>

#include "estimate/memory_peak.hpp"
#include "estimate/schedule_program.hpp"
#include "estimate/stage_transfers.hpp"
#include "estimate/step_tail.hpp"
#include "estimate/tables.hpp"
#include "moecast/estimate.hpp"

namespace moecast {

enum class Depth : unsigned char { bound, exact };

struct Outcome {
  enum class Status : unsigned char { fits, does_not_fit, no_plan } status = Status::no_plan;
  double peak = 0;      ///< allocated bytes of the largest rank
  double reserved = 0;  ///< of the same rank
  double host = 0;      ///< pinned bytes of one rank, largest
  double bound = 0;     ///< seconds: no schedule of this layout is faster
  double step = 0;      ///< seconds; 0 unless exact
  int largest_rank = 0;
};

/// One per thread: it keeps tables between calls. Results do not depend on what it has seen before.
class Evaluator {
 public:
  explicit Evaluator(const Problem& problem) : p_(problem) {}

  /// depth bound: plan, memory, bound. depth exact: the step as well (also when it does not fit).
  /// `detail` fills everything that an Estimate says about time and memory; needs depth exact.
  Outcome evaluate(const Layout& l, Depth depth, Estimate* detail = nullptr, bool trace = false);
  /// Only the steps of evaluate(l, Depth::exact), of layouts of one mesh; 0 when there is no plan.
  void steps(std::span<const Layout> layouts, std::span<double> out);
  /// The exact step of a layout whose layers lie as `plan` says, whatever its split.
  Outcome evaluate(const Layout& l, const PipelinePlan& plan);
  /// Model state (weights, gradients, optimizer) of the fullest rank: no recomputation or
  /// activation offload goes below. 0 when there is no plan.
  double least_state(const Layout& l);
  /// Why the last evaluate() had no plan.
  [[nodiscard]] const Diagnostics& plan_problems() const { return plan_problems_; }

  // What evaluate() is made of, for a search that asks about many layouts of one mesh.
  /// Valid until the next trim() or evaluate().
  const ShardTables& shard(const Layout& l);
  /// The same; perhaps without prices.
  const ShardTables& shard_memory(const Layout& l);
  /// Forgets tables when there are many.
  void trim();
  /// nullptr when there is no plan. Valid until another mesh is asked for.
  const MeshTables* mesh(const Layout& l);
  /// Reads of the layout: EP overlap, shared-expert overlap, recomputation.
  double bound(const Layout& l, const ShardTables& shard, const MeshTables& mesh) const;

 private:
  struct Exact;
  struct Detail;
  /// What the exact step asks about a mesh, for any inner choice.
  struct MeshTimes {
    std::vector<TailCosts> costs;  ///< per pp rank
    double p2p = 0;
  };
  Outcome on_mesh(const Layout& l, Depth depth, const MeshTables& m, Estimate* detail, bool trace);
  IssuedSet& issued(const Layout& l, const IssueFlags& flags, const ShardTables& shard);
  const MeshTimes& mesh_times(const Layout& l, const ShardTables& shard, const MeshTables& mesh);
  void schedule_times(const Layout& l, const IssueFlags& flags, const ScheduleShape& shape,
                      const ShardTables& shard, const MeshTables& mesh, ScheduleTimes& times);
  StepTail tail(const Layout& l, const ScheduleTimes& times, const Walk& walk, StepTail to = {});
  Exact exact(const Layout& l, const ShardTables& shard, const MeshTables& mesh, bool totals);
  Detail detail(const Layout& l, const Exact& e, const ShardTables& shard,
                const MeshTables& mesh) const;
  void describe(const Layout& l, const MeshTables& mesh, const Exact& e, const Detail& d,
                Estimate& out, bool trace) const;

  struct KeyHash {
    std::size_t operator()(const ShardKey& k) const;
  };
  const Problem& p_;
  std::unordered_map<ShardKey, std::unique_ptr<ShardTables>, KeyHash> shards_;
  KnownBusy known_busy_;
  std::unique_ptr<MeshTables> mesh_;
  MeshTimes mesh_times_;  ///< of mesh_; no costs: not asked yet
  MeshCache mesh_cache_;
  ScheduleWalker walker_;
  std::size_t issued_ = 0;  ///< layers and sets of them, in all shards
  // scratch of an exact step
  ScheduleTimes own_;  ///< of distinct stages and pairs
  std::vector<StageTransfers> transfers_;
  std::vector<double> first_forward_, first_backward_;
  std::vector<ScheduleTimes> times_;
  std::vector<Walk> walks_;
  Diagnostics plan_problems_;
};

}  // namespace moecast
