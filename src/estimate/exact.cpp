// Stage times, schedule, tail: the exact part of evaluate().
#include "estimate/exact.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "layout/rank_groups.hpp"

namespace moecast {

double work_in_order(const ScheduleShape& s, const Pipeline::Distinct& distinct,
                     const ScheduleTimes& own) {
  const auto sum = [](const std::vector<double>& of, const std::vector<std::size_t>& index) {
    double total = 0;
    for (const std::size_t i : index) total += of[i];
    return total;
  };
  const double both = own.both.empty() ? 0 : sum(own.both, distinct.of_pair);
  return microbatch_work(s, sum(own.forward, distinct.of_stage),
                         sum(own.backward, distinct.of_stage), both, own.p2p);
}

/// It reads the exponent of a sum, so where that is plain the sum is taken
/// the short way: how often each piece is there, times its seconds.
ExactGrid grid_of(const ScheduleShape& s, const Pipeline::Distinct& distinct,
                  const ScheduleTimes& own) {
  double all = 0, both = 0;
  for (std::size_t i = 0; i < own.forward.size(); ++i)
    all += distinct.stage_count[i] * (own.forward[i] + own.backward[i]);
  for (std::size_t i = 0; i < own.both.size(); ++i) both += distinct.pair_count[i] * own.both[i];
  const double about = microbatch_work(s, all, 0, both, own.p2p) * s.microbatches;
  constexpr double kRounding = 1e-9;  // of a million sums
  const bool plain = about > 0 && std::isfinite(about) &&
                     std::ilogb(about * (1 - kRounding)) == std::ilogb(about * (1 + kRounding));
  return ExactGrid(plain ? about : work_in_order(s, distinct, own) * s.microbatches);
}

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

/// Every stage as the distinct ones take, rounded to the grid of them all.
void spread_on_grid(const ScheduleShape& s, const Pipeline::Distinct& distinct, ScheduleTimes& own,
                    ScheduleTimes& t) {
  const ExactGrid grid = grid_of(s, distinct, own);
  const auto spread = [&](std::vector<double>& of, const std::vector<std::size_t>& index,
                          std::vector<double>& to) {
    for (double& seconds : of) seconds = grid.nearest(seconds);
    to.resize(of.empty() ? 0 : index.size());
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = of[index[i]];
  };
  spread(own.forward, distinct.of_stage, t.forward);
  spread(own.backward, distinct.of_stage, t.backward);
  spread(own.both, distinct.of_pair, t.both);
  t.p2p = grid.nearest(own.p2p);
  t.p2p_blocks = own.p2p_blocks;
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
    const std::size_t before = s.issued_layers.size();
    slot = std::make_unique<IssuedSet>(p_, s, flags, fully_recomputed(l), block_layers(l));
    issued_ += 1 + s.issued_layers.size() - before;
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
void Evaluator::schedule_times(const Layout& l, const IssueFlags& flags, const ScheduleShape& shape,
                               const ShardTables& s, const MeshTables& m, ScheduleTimes& t) {
  IssuedSet& set = issued(l, flags, s);
  const Pipeline& pipeline = *m.pipeline;
  const Pipeline::Distinct& distinct = pipeline.distinct;
  const bool moves =
      !l.offload_modules.empty() || l.cpu_offloading_num_layers > 0 || l.fsdp != FsdpSharding::none;
  const auto content = [&](std::size_t i) {
    return pipeline.content[static_cast<std::size_t>(distinct.stages[i])];
  };
  const auto stage = [&](std::size_t i) -> const StageCounts& {
    return m.stages()[static_cast<std::size_t>(distinct.stages[i])];
  };
  own_.forward.clear();
  own_.backward.clear();
  own_.both.clear();
  transfers_.clear();
  for (std::size_t i = 0; i < distinct.stages.size(); ++i) {
    transfers_.push_back(moves ? stage_transfers(p_, l, s, stage(i)) : StageTransfers{});
    const StageSeconds alone = set.seconds(content(i), stage(i), drained(l, flags));
    own_.forward.push_back(transfers_[i].forward.over(alone.forward));
    own_.backward.push_back(transfers_[i].backward.over(alone.backward));
  }
  for (std::size_t i = 0; flags.overlap && i < distinct.pairs.size(); ++i) {
    const auto [f, b] = distinct.pairs[i];
    own_.both.push_back(
        transfers_[f].both.over(set.pair_seconds(content(f), stage(f), content(b), stage(b))));
  }
  own_.p2p = mesh_times(l, s, m).p2p;
  own_.p2p_blocks = l.pp > 1 && l.vpp == 1;
  spread_on_grid(shape, distinct, own_, t);
}

Evaluator::Exact Evaluator::exact(const Layout& l, const ShardTables& s, const MeshTables& m,
                                  bool totals) {
  Exact e;
  e.flags = issue_flags(p_, l);
  e.shape = schedule_shape(l, m.microbatches);
  schedule_times(l, e.flags, e.shape, s, m, e.times);
  e.walk = walker_.walk(e.shape, e.times, totals);
  e.tail = tail(l, e.times, e.walk);
  return e;
}

StepTail Evaluator::tail(const Layout& l, const ScheduleTimes& t, const Walk& walk, StepTail to) {
  first_forward_.clear();
  first_backward_.clear();
  for (int r = 0; r < l.pp; ++r) {
    first_forward_.push_back(t.forward[static_cast<std::size_t>(r * l.vpp)]);
    first_backward_.push_back(t.backward[static_cast<std::size_t>(r * l.vpp)]);
  }
  return step_tail(p_, l, mesh_times_.costs, walk, first_forward_, first_backward_, std::move(to));
}

void Evaluator::steps(std::span<const Layout> layouts, std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  const MeshTables* m = layouts.empty() ? nullptr : mesh(layouts.front());
  if (m == nullptr) return;
  times_.resize(kMostLanes);
  walks_.resize(kMostLanes);
  const ShardTables* tables = nullptr;
  ShardKey known;
  StepTail ended;
  for (const bool overlap : {false, true}) {
    std::array<std::size_t, kMostLanes> lanes{};
    std::size_t count = 0;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const Layout& l = layouts[i];
      const ScheduleShape shape = schedule_shape(l, m->microbatches);
      if (l.overlap_moe_expert_parallel_comm == overlap) {
        if (const ShardKey key = shard_key(l); tables == nullptr || key != known) {
          tables = &shard(l);
          known = key;
        }
        schedule_times(l, issue_flags(p_, l), shape, *tables, *m, times_[count]);
        lanes[count++] = i;
      }
      if (count == 0 || (count < kMostLanes && i + 1 < layouts.size())) continue;
      ScheduleShape own = shape;
      own.overlap = overlap;
      walker_.walk(own, std::span(times_).first(count), std::span(walks_).first(count), false);
      for (std::size_t lane = 0; lane < count; ++lane) {
        out[lanes[lane]] =
            (ended = tail(layouts[lanes[lane]], times_[lane], walks_[lane], std::move(ended))).step;
      }
      count = 0;
    }
  }
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
