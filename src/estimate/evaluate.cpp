#include "estimate/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

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

const ShardTables& Evaluator::shard_memory(const Layout& l) {
  const ShardKey key = shard_key(l);
  auto& slot = shards_[key];
  if (!slot) slot = std::make_unique<ShardTables>(make_shard_memory(p_, key));
  return *slot;
}

const ShardTables& Evaluator::shard(const Layout& l) {
  const ShardKey key = shard_key(l);
  auto& slot = shards_[key];
  if (!slot) slot = std::make_unique<ShardTables>(make_shard_memory(p_, key));
  if (!slot->priced) price_shard(p_, key, known_busy_, *slot);
  return *slot;
}

void Evaluator::trim() {
  constexpr std::size_t kKept = 256, kKeptIssued = 8192;  // a search passes by thousands
  if (shards_.size() <= kKept && issued_ <= kKeptIssued) return;
  shards_.clear();
  issued_ = 0;
}

const MeshTables* Evaluator::mesh(const Layout& l) {
  if (mesh_ && mesh_->mesh == mesh_of(l)) return mesh_.get();
  if (!mesh_) mesh_ = std::make_unique<MeshTables>();
  plan_problems_ = fill_mesh_tables(p_, l, mesh_cache_, nullptr, *mesh_);
  if (!plan_problems_.empty()) mesh_ = nullptr;
  mesh_times_ = {};
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
  const MeshTables* m = mesh(l);
  return m == nullptr ? Outcome{} : on_mesh(l, depth, *m, detail, trace);
}

Outcome Evaluator::evaluate(const Layout& l, const PipelinePlan& plan) {
  auto tables = make_mesh_tables(p_, l, mesh_cache_, &plan);
  if (!tables) return {};
  mesh_ = std::make_unique<MeshTables>(tables.take());
  mesh_times_ = {};
  const Outcome out = on_mesh(l, Depth::exact, *mesh_, nullptr, false);
  mesh_ = nullptr;  // it is not what the layout says
  return out;
}

Outcome Evaluator::on_mesh(const Layout& l, Depth depth, const MeshTables& mesh, Estimate* detail,
                           bool trace) {
  Outcome out;
  const MeshTables* m = &mesh;
  trim();
  const ShardTables& s = shard(l);

  const LayoutMemory memory(p_, l, s, *m);
  std::vector<int> every_rank;
  for (int r = 0; detail != nullptr && r < l.pp; ++r) every_rank.push_back(r);
  for (const int r : detail != nullptr ? every_rank : m->pipeline->fullest) {
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
      rank.peak_reserved = bytes(reserved_bytes(p_, *m, allocated));
      rank.outside_allocator = bytes(m->outside);
      rank.at_rest = bytes(peak.at_rest);
      rank.peak_before_graphs = bytes(peak.before_graphs);
      rank.peak_first_step = bytes(peak.first_step);
      rank.host = bytes(peak.host);
      rank.moment = peak.moment;
      rank.detail = std::move(tree);
      detail->ranks.push_back(std::move(rank));
    }
  }
  out.reserved = reserved_bytes(p_, *m, out.peak);
  out.status = out.reserved <= p_.system().gpu.hbm_capacity.value ? Outcome::Status::fits
                                                                  : Outcome::Status::does_not_fit;
  out.bound = bound(l, s, *m);
  if (depth == Depth::bound) return out;

  const Exact e = exact(l, s, *m, detail != nullptr);
  out.step = e.tail.step;
  if (detail != nullptr) describe(l, *m, e, this->detail(l, e, s, *m), *detail, trace);
  return out;
}

namespace {

/// Busy seconds that no schedule can avoid: the one stream's sum, or with EP overlap the compute
/// stream's.
double least(const OpSums& s, const Layout& l) {
  if (l.overlap_moe_expert_parallel_comm) return s.compute + s.shared + s.other;
  const double serial = s.compute + s.side + s.other + s.ep;
  return l.moe_shared_expert_overlap ? serial : serial + s.shared;
}

}  // namespace

double Evaluator::bound(const Layout& l, const ShardTables& s, const MeshTables& m) const {
  const std::uint16_t recompute = selective_modules(l);
  const bool full = l.recompute_granularity == RecomputeGranularity::full &&
                    l.recompute_method != RecomputeMethod::block;
  Work seconds;
  for (std::size_t i = 0; i < s.classes.size(); ++i) {
    const ClassTable& c = s.classes[i];
    double& layer = seconds[kStageEnds + i];
    layer = least(c.forward, l) + least(c.backward, l);
    if (full) layer += least(c.forward, l);
    if (recompute != 0) layer += least(c.again(recompute, l.offload_modules.bits), l);
  }
  seconds[kEmbedding] = least(s.embedding_forward, l) + least(s.embedding_backward, l);
  seconds[kHead] = least(s.head_forward, l) + least(s.head_backward, l);
  seconds[kMtpExtra] = least(s.mtp_forward, l) + least(s.mtp_backward, l);
  return m.pipeline->busy_bound(m.microbatches, seconds) + m.least_tail;
}

}  // namespace moecast
