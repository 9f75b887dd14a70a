#include "estimate/evaluate.hpp"

#include <algorithm>
#include <array>

#include "estimate/exact.hpp"

namespace moecast {

std::size_t Evaluator::KeyHash::operator()(const ShardKey& k) const {
  std::size_t h = 1469598103934665603ull;
  for (const int v :
       {k.tp, k.cp, k.ep, k.etp, k.micro_batch_size, static_cast<int>(k.precision),
        static_cast<int>(k.dispatcher), k.dispatcher_num_sms,
        static_cast<int>(k.sequence_parallel) * 2 + static_cast<int>(k.tp_comm_overlap),
        static_cast<int>(k.cp_comm_type) * 4 + static_cast<int>(k.grad_dtype)}) {
    h = (h ^ static_cast<std::size_t>(v)) * 1099511628211ull;
  }
  return h;
}

const ShardTables& Evaluator::shard(const Layout& l) {
  const ShardKey key = shard_key(l);
  auto& slot = shards_[key];
  if (!slot) slot = std::make_unique<ShardTables>(make_shard_tables(p_, key));
  return *slot;
}

const MeshTables* Evaluator::mesh(const Layout& l) {
  if (mesh_ && mesh_->mesh == mesh_of(l)) return mesh_.get();
  auto tables = make_mesh_tables(p_, l, mesh_cache_);
  plan_problems_ = tables.problems();
  if (!tables) return nullptr;
  mesh_ = std::make_unique<MeshTables>(tables.take());
  return mesh_.get();
}

double Evaluator::least_state(const Layout& l) {
  const MeshTables* m = mesh(l);
  double most = 0;
  if (m != nullptr) {
    for (const RankState& s : m->states) most = std::max(most, s.total());
  }
  return most;
}

Outcome Evaluator::evaluate(const Layout& l, Depth depth, Estimate* detail, bool trace) {
  Outcome out;
  const MeshTables* m = mesh(l);
  if (m == nullptr) return out;
  const ShardTables& s = shard(l);

  const LayoutMemory memory(p_, l, s, *m);
  for (int r = 0; r < l.pp; ++r) {
    MemoryItem tree;
    const RankPeak peak = memory.rank_peak(r, detail != nullptr ? &tree : nullptr);
    const double allocated = peak.allocated();
    if (allocated > out.peak) {
      out.peak = allocated;
      out.largest_rank = r;
    }
    out.host = std::max(out.host, peak.host);
    if (detail != nullptr) {
      RankMemory rank;
      rank.pp_rank = r;
      rank.params = m->params[static_cast<std::size_t>(r)].total();
      rank.weights = bytes(peak.weights);
      rank.gradients = bytes(peak.gradients);
      rank.optimizer = bytes(peak.optimizer);
      rank.activations = bytes(peak.stored + peak.transient);
      rank.dispatcher = bytes(peak.dispatcher);
      rank.cuda_graph = bytes(peak.cuda_graph);
      rank.workspace = bytes(peak.workspace);
      rank.peak = bytes(allocated);
      rank.peak_reserved = bytes(reserved_bytes(p_, l, allocated));
      rank.outside_allocator = bytes(outside_allocator_terms(p_, l).total());
      rank.at_rest = bytes(peak.at_rest);
      rank.peak_before_graphs = bytes(peak.before_graphs);
      rank.peak_first_step = bytes(peak.first_step);
      rank.host = bytes(peak.host);
      rank.moment = peak.moment;
      rank.detail = std::move(tree);
      detail->ranks.push_back(std::move(rank));
    }
  }
  out.reserved = reserved_bytes(p_, l, out.peak);
  out.status = out.reserved <= p_.system().gpu.hbm_capacity.value ? Outcome::Status::fits
                                                                  : Outcome::Status::does_not_fit;
  out.bound = bound(l, s, *m);
  if (depth == Depth::bound) return out;

  const Exact e = exact(l, s, *m);
  out.step = e.tail.step;
  if (detail != nullptr) describe(l, s, *m, e, *detail, trace);
  return out;
}

namespace {

struct Sums {
  double forward = 0, backward = 0;
};

/// Busy time that no schedule can avoid: the one stream's sum, or with EP overlap the compute
/// stream's.
Sums least(const OpSums& f, const OpSums& b, const OpSums& again, const Layout& l) {
  const auto stream = [&](const OpSums& s) {
    if (l.overlap_moe_expert_parallel_comm) return s.compute + s.shared + s.other;
    const double serial = s.compute + s.side + s.other + s.ep;
    return l.moe_shared_expert_overlap ? serial : serial + s.shared;
  };
  return {stream(f), stream(b) + stream(again)};
}

}  // namespace

double Evaluator::bound(const Layout& l, const ShardTables& s, const MeshTables& m) const {
  const std::uint16_t recompute = selective_modules(l);
  const bool full = l.recompute_granularity == RecomputeGranularity::full &&
                    l.recompute_method != RecomputeMethod::block;
  const OpSums none;
  std::array<Sums, kMaxClasses> per_class;
  for (std::size_t i = 0; i < s.classes.size(); ++i) {
    const ClassTable& c = s.classes[i];
    const OpSums& again = full             ? c.forward
                          : recompute != 0 ? c.under(recompute, l.offload_modules.bits).again
                                           : none;
    per_class[i] = least(c.forward, c.backward, again, l);
  }
  const Sums embedding = least(s.embedding_forward, s.embedding_backward, none, l);
  const Sums head = least(s.head_forward, s.head_backward, none, l);
  const Sums mtp = least(s.mtp_forward, s.mtp_backward, none, l);
  ScheduleTimes& t = bound_times_;
  t.forward.clear();
  t.backward.clear();
  for (const StageCounts& stage : m.stages) {
    Sums sum;
    for (std::size_t c = 0; c < s.classes.size(); ++c) {
      sum.forward += stage.layers[c] * per_class[c].forward;
      sum.backward += stage.layers[c] * per_class[c].backward;
    }
    const double heads = stage.mtp_depths + (stage.loss ? 1 : 0);
    sum.forward += (stage.embedding ? embedding.forward : 0) + heads * head.forward +
                   stage.mtp_depths * mtp.forward;
    sum.backward += (stage.embedding ? embedding.backward : 0) + heads * head.backward +
                    stage.mtp_depths * mtp.backward;
    t.forward.push_back(sum.forward);
    t.backward.push_back(sum.backward);
  }
  return makespan_bound(schedule_shape(l, m.microbatches), t) + m.least_tail;
}

}  // namespace moecast
