// Stage times, schedule, tail: the exact part of evaluate().
#include "estimate/exact.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "layout/rank_groups.hpp"

namespace moecast {
namespace {

IssueFlags issue_flags(const Problem& p, const Layout& l) {
  IssueFlags f;
  f.recompute = selective_modules(l);
  f.full_graph = l.cuda_graph_impl == CudaGraphImpl::full_iteration;
  f.graph = captured_modules(l);
  f.overlap = l.overlap_moe_expert_parallel_comm;
  f.delay_wgrad = l.delay_wgrad_compute;
  f.shared_overlap = l.moe_shared_expert_overlap;
  const int sms = l.dispatcher_num_sms > 0 ? l.dispatcher_num_sms : default_num_sms(l.dispatcher);
  f.sm_share = static_cast<double>(sms) / p.system().gpu.sms;
  return f;
}

/// Seconds of offload traffic that a stage cannot hide under its own work, each direction.
double offload_exposed(const Problem& p, const Layout& l, const ShardTables& s,
                       const StageCounts& stage, double window) {
  if (l.offload_modules.empty() && l.cpu_offloading_num_layers == 0) return 0;
  const std::uint16_t recompute = selective_modules(l);
  double moved = 0;
  const std::vector<int> order = stage.order();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ClassUnder& u =
        s.classes[static_cast<std::size_t>(order[i])].under(recompute, l.offload_modules.bits);
    moved += static_cast<int>(i) < l.cpu_offloading_num_layers ? u.stored
                                                               : u.offloadable * l.offload_fraction;
  }
  return std::max(0.0, p.prices().host_copy(moved).value - window);
}

/// Megatron-FSDP gathers the weights of every unit before its forward and again before its
/// backward, and reduce-scatters its gradients after it, for every microbatch; a stage hides them
/// under its own work.
struct FsdpTraffic {
  double gather = 0, scatter = 0;  ///< seconds per stage
};
FsdpTraffic fsdp_traffic(const Problem& p, const Layout& l, const StageCounts& stage) {
  FsdpTraffic t;
  if (l.fsdp == FsdpSharding::none) return t;
  RankParams params;
  for (std::size_t cls = 0; cls < stage.layers.size(); ++cls) {
    const RankParams layer = layer_rank_params(p, l, p.classes[cls]);
    params.dense += stage.layers[cls] * layer.dense;
    params.expert += stage.layers[cls] * layer.expert;
  }
  const TailCosts costs = tail_costs(p, l, params);
  t.gather = costs.gather;
  t.scatter = costs.reduce;
  return t;
}

Spent with_fsdp(Spent s, double traffic) {
  const double exposed = std::max(0.0, traffic - s.duration);
  s.duration += exposed;
  s.dp_exposed += exposed;
  return s;
}

Spent with_offload(Spent s, double exposed) {
  s.duration += exposed;
  s.offload_exposed += exposed;
  return s;
}

}  // namespace

/// Forward of every chunk beside backward of every chunk of the same rank; pairs of equal contents
/// are priced once.
void Evaluator::price_pairs(const Layout& l, const ShardTables& s, const MeshTables& m,
                            Exact& e) const {
  std::map<std::pair<int, int>, Spent> priced;
  for (int r = 0; r < l.pp; ++r) {
    for (int f = 0; f < l.vpp; ++f) {
      for (int b = 0; b < l.vpp; ++b) {
        const std::size_t fi = static_cast<std::size_t>(r * l.vpp + f),
                          bi = static_cast<std::size_t>(r * l.vpp + b);
        const auto [at, fresh] =
            priced.try_emplace({m.pipeline->content[fi], m.pipeline->content[bi]});
        if (fresh) {
          const Spent pair = overlapped_time(p_, e.stages[fi], e.stages[bi], e.flags);
          const FsdpTraffic fsdp = fsdp_traffic(p_, l, m.stages()[fi]);
          at->second = with_fsdp(
              with_offload(pair, offload_exposed(p_, l, s, m.stages()[fi], pair.duration)),
              2 * fsdp.gather + fsdp.scatter);
        }
        e.both.push_back(at->second);
        e.times.both.push_back(at->second.duration);
      }
    }
  }
}

Evaluator::Exact Evaluator::exact(const Layout& l, const ShardTables& s,
                                  const MeshTables& m) const {
  Exact e;
  e.layers.reserve(2 * s.classes.size() + 3);  // stages point into it
  e.flags = issue_flags(p_, l);
  const bool full = l.recompute_granularity == RecomputeGranularity::full;
  const bool block = full && l.recompute_method == RecomputeMethod::block;
  const std::size_t classes = s.classes.size();
  for (int variant = 0; variant < 2;
       ++variant) {  // [classes] recomputed or as the layout says, [classes + c] plain
    IssueFlags flags = e.flags;
    flags.recompute_all = full && variant == 0;
    for (const ClassTable& c : s.classes) e.layers.push_back(issue(p_, c.ops, flags));
  }
  IssueFlags ends = e.flags;
  ends.recompute = 0;
  for (const LayerOps* end : {&s.embedding, &s.head, &s.mtp_extra})
    e.layers.push_back(issue(p_, *end, ends));
  const IssuedLayer *embedding = &e.layers[2 * classes], *head = embedding + 1,
                    *mtp_extra = embedding + 2;

  for (const StageCounts& stage : m.stages()) {
    IssuedStage list;
    if (stage.embedding) list.push_back(embedding);
    const std::vector<int> order = stage.order();
    const std::size_t decoder =
        order.size() - static_cast<std::size_t>(stage.mtp_depths) * p_.mtp_classes.size();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool first_of_depth =
          i >= decoder && (i - decoder) % std::max<std::size_t>(1, p_.mtp_classes.size()) == 0;
      if (first_of_depth) list.push_back(mtp_extra);
      const bool plain = block && static_cast<int>(i) >= l.recompute_num_layers;
      list.push_back(&e.layers[static_cast<std::size_t>(order[i]) + (plain ? classes : 0)]);
    }
    for (int d = 0; d < stage.mtp_depths + (stage.loss ? 1 : 0); ++d) list.push_back(head);
    e.stages.push_back(std::move(list));
  }
  e.shape = schedule_shape(l, m.microbatches);
  const bool drained = l.pp > 1 && l.vpp == 1;
  std::map<int, StageTime> priced;
  for (std::size_t i = 0; i < m.stages().size(); ++i) {
    const auto [at, fresh] = priced.try_emplace(m.pipeline->content[i]);
    if (fresh) {
      StageTime& t = at->second;
      t = stage_time(p_, e.stages[i], drained && !e.flags.full_graph, e.flags.shared_overlap);
      t.forward =
          with_offload(t.forward, offload_exposed(p_, l, s, m.stages()[i], t.forward.duration));
      t.backward =
          with_offload(t.backward, offload_exposed(p_, l, s, m.stages()[i], t.backward.duration));
      const FsdpTraffic fsdp = fsdp_traffic(p_, l, m.stages()[i]);
      t.forward = with_fsdp(t.forward, fsdp.gather);
      t.backward = with_fsdp(t.backward, fsdp.gather + fsdp.scatter);
    }
    e.stage_times.push_back(at->second);
    e.times.forward.push_back(at->second.forward.duration);
    e.times.backward.push_back(at->second.backward.duration);
  }
  if (e.flags.overlap) price_pairs(l, s, m, e);
  if (l.pp > 1) {
    const GroupShape pp = group_shape(GroupName::pp, l, p_.world);
    GroupSpan neighbours = p_.cluster.span(pp.stride, 2);
    const double bytes = 2 * s.dims.n * s.dims.h;
    e.times.p2p = p_.prices().collective(Collective::send_recv, bytes, neighbours).value *
                  p_.ablation.communication;
    e.times.p2p_blocks = l.vpp == 1;
  }
  e.walk = walk(e.shape, e.times);
  std::vector<double> forward0, backward0;
  for (int r = 0; r < l.pp; ++r) {
    TailCosts costs = tail_costs(p_, l, m.params[static_cast<std::size_t>(r)]);
    if (l.fsdp != FsdpSharding::none) {  // paid with every microbatch already
      costs.reduce = costs.reduce_bucket = costs.gather = costs.gather_bucket = 0;
    }
    e.costs.push_back(costs);
    forward0.push_back(e.times.forward[static_cast<std::size_t>(r * l.vpp)]);
    backward0.push_back(e.times.backward[static_cast<std::size_t>(r * l.vpp)]);
  }
  e.tail = step_tail(p_, l, e.costs, e.walk, forward0, backward0);
  return e;
}

}  // namespace moecast
