// Stage times, schedule, tail: the exact part of evaluate().
#include "estimate/exact.hpp"

#include <algorithm>

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
  const int domains = p.cluster.span(1, l.etp * l.ep).domains;
  const int sms =
      l.dispatcher_num_sms > 0 ? l.dispatcher_num_sms : default_num_sms(l.dispatcher, domains);
  f.sm_share = static_cast<double>(sms) / p.system().gpu.sms;
  return f;
}

/// Seconds of a stage's offload traffic, each direction.
double offload_seconds(const Problem& p, const Layout& l, const ShardTables& s,
                       const StageCounts& stage) {
  if (l.offload_modules.empty() && l.cpu_offloading_num_layers == 0) return 0;
  const std::uint16_t recompute = selective_modules(l);
  double moved = 0;
  int at = 0;
  for (const LayerRun& run : stage.runs) {
    const ClassUnder& u =
        s.classes[static_cast<std::size_t>(run.cls)].under(recompute, l.offload_modules.bits);
    const int whole = std::clamp(l.cpu_offloading_num_layers - at, 0, run.count);
    moved += whole * u.stored + (run.count - whole) * u.offloadable * l.offload_fraction;
    at += run.count;
  }
  return p.prices().host_copy(moved).value;
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

/// What moves beside a stage and what its own work does not hide of it.
struct Transfers {
  double offload = 0, fsdp = 0;
  [[nodiscard]] double over(double duration) const { return std::max({duration, offload, fsdp}); }
  [[nodiscard]] Spent over(Spent s) const {
    const double offload_exposed = std::max(0.0, offload - s.duration);
    s.duration += offload_exposed;
    s.offload_exposed += offload_exposed;
    const double exposed = std::max(0.0, fsdp - s.duration);
    s.duration += exposed;
    s.dp_exposed += exposed;
    return s;
  }
};

struct StageTransfers {
  Transfers forward, backward, both;
};
StageTransfers stage_transfers(const Problem& p, const Layout& l, const ShardTables& s,
                               const StageCounts& stage) {
  const double offload = offload_seconds(p, l, s, stage);
  const FsdpTraffic fsdp = fsdp_traffic(p, l, stage);
  return {{offload, fsdp.gather},
          {offload, fsdp.gather + fsdp.scatter},
          {offload, 2 * fsdp.gather + fsdp.scatter}};
}

/// Layers of a chunk, from its first, that full recomputation repeats; -1: all are treated alike.
int block_layers(const Layout& l) {
  return l.recompute_granularity == RecomputeGranularity::full &&
                 l.recompute_method == RecomputeMethod::block
             ? l.recompute_num_layers
             : -1;
}
bool fully_recomputed(const Layout& l) {
  return l.recompute_granularity == RecomputeGranularity::full;
}

/// A device sync separates every forward and backward.
bool drained(const Layout& l, const IssueFlags& flags) {
  return l.pp > 1 && l.vpp == 1 && !flags.full_graph;
}

/// Calls f(rank) for the first rank of every kind, and copies its `per_rank` values to the others.
template <typename T, typename F>
void for_kinds(const Pipeline& pipeline, std::size_t per_rank, std::vector<T>& values, F f) {
  for (std::size_t r = 0; r < pipeline.kind.size(); ++r) {
    const auto twin = static_cast<std::size_t>(pipeline.kind[r]);
    if (twin == r) {
      f(r);
      continue;
    }
    for (std::size_t i = 0; i < per_rank; ++i) values.push_back(values[twin * per_rank + i]);
  }
}

}  // namespace

IssuedSet& Evaluator::issued(const Layout& l, const IssueFlags& flags, const ShardTables& s) {
  auto& slot = s.issued[issue_key(flags, fully_recomputed(l), block_layers(l))];
  if (!slot) {
    slot = std::make_unique<IssuedSet>(p_, s, flags, fully_recomputed(l), block_layers(l));
    slot->forget_operations();
    ++issued_sets_;
  }
  return *slot;
}

const Evaluator::MeshTimes& Evaluator::mesh_times(const Layout& l, const ShardTables& s,
                                                  const MeshTables& m) {
  if (!mesh_times_.costs.empty()) return mesh_times_;
  for_kinds(*m.pipeline, 1, mesh_times_.costs, [&](std::size_t r) {
    TailCosts costs = tail_costs(p_, l, m.params[r]);
    if (l.fsdp != FsdpSharding::none)  // paid with every microbatch already
      costs.reduce = costs.reduce_bucket = costs.gather = costs.gather_bucket = 0;
    mesh_times_.costs.push_back(costs);
  });
  if (l.pp > 1) {
    const GroupShape pp = group_shape(GroupName::pp, l, p_.world);
    const double bytes = 2 * s.dims.n * s.dims.h;
    mesh_times_.p2p =
        p_.prices().collective(Collective::send_recv, bytes, p_.cluster.span(pp.stride, 2)).value *
        p_.ablation.communication;
  }
  return mesh_times_;
}

/// Stages of equal contents are priced once, also over pipelines.
ScheduleTimes Evaluator::schedule_times(const Layout& l, const IssueFlags& flags,
                                        const ShardTables& s, const MeshTables& m) {
  IssuedSet& set = issued(l, flags, s);
  const Pipeline& pipeline = *m.pipeline;
  const auto vpp = static_cast<std::size_t>(l.vpp);
  const bool alone = drained(l, flags);
  ScheduleTimes t;
  const auto stage = [&](std::size_t i) -> const StageSeconds& {
    return set.seconds(pipeline.content[i], m.stages()[i], alone);
  };
  const bool moves =
      !l.offload_modules.empty() || l.cpu_offloading_num_layers > 0 || l.fsdp != FsdpSharding::none;
  const auto transfers = [&](std::size_t i) {
    return moves ? stage_transfers(p_, l, s, m.stages()[i]) : StageTransfers{};
  };
  for_kinds(pipeline, vpp, t.forward, [&](std::size_t r) {
    for (std::size_t c = 0; c < vpp; ++c)
      t.forward.push_back(transfers(r * vpp + c).forward.over(stage(r * vpp + c).forward));
  });
  for_kinds(pipeline, vpp, t.backward, [&](std::size_t r) {
    for (std::size_t c = 0; c < vpp; ++c)
      t.backward.push_back(transfers(r * vpp + c).backward.over(stage(r * vpp + c).backward));
  });
  if (flags.overlap) {
    for_kinds(pipeline, vpp * vpp, t.both, [&](std::size_t r) {
      for (std::size_t f = r * vpp; f < (r + 1) * vpp; ++f) {
        for (std::size_t b = r * vpp; b < (r + 1) * vpp; ++b)
          t.both.push_back(transfers(f).both.over(set.pair_seconds(
              pipeline.content[f], m.stages()[f], pipeline.content[b], m.stages()[b])));
      }
    });
  }
  t.p2p = mesh_times(l, s, m).p2p;
  t.p2p_blocks = l.pp > 1 && l.vpp == 1;
  return t;
}

Evaluator::Exact Evaluator::exact(const Layout& l, const ShardTables& s, const MeshTables& m,
                                  bool totals) {
  Exact e;
  e.flags = issue_flags(p_, l);
  e.shape = schedule_shape(l, m.microbatches);
  e.times = on_grid(e.shape, schedule_times(l, e.flags, s, m));
  e.walk = walker_.walk(e.shape, e.times, totals);
  std::vector<double> forward0, backward0;
  for (int r = 0; r < l.pp; ++r) {
    forward0.push_back(e.times.forward[static_cast<std::size_t>(r * l.vpp)]);
    backward0.push_back(e.times.backward[static_cast<std::size_t>(r * l.vpp)]);
  }
  e.tail = step_tail(p_, l, mesh_times(l, s, m).costs, e.walk, forward0, backward0);
  return e;
}

Evaluator::Detail Evaluator::detail(const Layout& l, const Exact& e, const ShardTables& s,
                                    const MeshTables& m) const {
  Detail d{IssuedSet(p_, s, e.flags, fully_recomputed(l), block_layers(l)), {}, {}, {}};
  for (const StageCounts& stage : m.stages()) d.stages.push_back(d.issued.stage(stage));
  const auto vpp = static_cast<std::size_t>(l.vpp);
  for_kinds(*m.pipeline, vpp, d.stage_times, [&](std::size_t r) {
    for (std::size_t i = r * vpp; i < (r + 1) * vpp; ++i) {
      StageTime t = stage_time(p_, d.stages[i], drained(l, e.flags), e.flags.shared_overlap);
      const StageTransfers moved = stage_transfers(p_, l, s, m.stages()[i]);
      d.stage_times.push_back({moved.forward.over(t.forward), moved.backward.over(t.backward)});
    }
  });
  if (!e.flags.overlap) return d;
  for_kinds(*m.pipeline, vpp * vpp, d.both, [&](std::size_t r) {
    for (std::size_t f = r * vpp; f < (r + 1) * vpp; ++f) {
      const StageTransfers moved = stage_transfers(p_, l, s, m.stages()[f]);
      for (std::size_t b = r * vpp; b < (r + 1) * vpp; ++b)
        d.both.push_back(moved.both.over(overlapped_time(p_, d.stages[f], d.stages[b], e.flags)));
    }
  });
  return d;
}

}  // namespace moecast
