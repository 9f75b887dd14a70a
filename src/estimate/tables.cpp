#include "estimate/tables.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "estimate/step_tail.hpp"
#include "layout/pipeline_plan.hpp"

namespace moecast {

OpSums sum_ops(const std::vector<Op>& ops, std::uint16_t only_recomputed_by) {
  OpSums s;
  for (const Op& op : ops) {
    if (only_recomputed_by != 0 && (op.recompute & only_recomputed_by) == 0) continue;
    const bool aside = op.part == Part::dispatch || op.part == Part::combine;
    if (op.cls == OpClass::ep_comm || (aside && is_communication(op.cls))) {
      s.ep += op.gpu.value;
    } else if (op.shared) {  // with its own collectives
      s.shared += op.gpu.value;
    } else if (is_communication(op.cls)) {
      s.other += op.gpu.value;
    } else if (aside) {
      s.side += op.gpu.value;
    } else {
      s.compute += op.gpu.value;
    }
  }
  return s;
}

const ClassUnder& ClassTable::under(std::uint16_t recompute, std::uint16_t offload) const {
  const auto [u, fresh] = under_.at(std::uint64_t{offload} << 16 | recompute);
  if (fresh) {
    u.stored = memory.stored(recompute);
    u.offloadable = memory.offloadable(recompute, offload);
    u.rebuild = memory.rebuilt(recompute);
  }
  return u;
}

const OpSums& ClassTable::again(std::uint16_t recompute, std::uint16_t offload) const {
  const ClassUnder& u = under(recompute, offload);
  if (!u.again_known && recompute != 0) u.again = sum_ops(ops.forward, recompute);
  u.again_known = true;
  return u.again;
}

ShardTables make_shard_memory(const Problem& p, const ShardKey& k) {
  ShardTables t;
  t.dims = make_dims(p, k);
  t.classes.resize(p.classes.size());
  for (std::size_t i = 0; i < p.classes.size(); ++i)
    t.classes[i].memory = layer_memory(p, k, p.classes[i]);
  t.head_memory = head_memory(p, k);
  t.dispatcher_bytes = dispatcher_terms(p, k, t.dims).total();
  return t;
}

void price_shard(const Problem& p, const ShardKey& k, KnownBusy& known, ShardTables& t) {
  const double clock = tensor_clock(p, k, known);
  std::vector<LayerOps> ops = class_ops(p, k, clock);
  for (std::size_t i = 0; i < p.classes.size(); ++i) {
    ClassTable& c = t.classes[i];
    c.ops = std::move(ops[i]);
    c.forward = sum_ops(c.ops.forward);
    c.backward = sum_ops(c.ops.backward);
  }
  t.embedding = embedding_ops(p, k, clock);
  t.head = head_ops(p, k, clock);
  t.mtp_extra = mtp_extra_ops(p, k, clock);
  t.embedding_forward = sum_ops(t.embedding.forward);
  t.embedding_backward = sum_ops(t.embedding.backward);
  t.head_forward = sum_ops(t.head.forward);
  t.head_backward = sum_ops(t.head.backward);
  t.mtp_forward = sum_ops(t.mtp_extra.forward);
  t.mtp_backward = sum_ops(t.mtp_extra.backward);
  t.priced = true;
}

ScheduleShape schedule_shape(const Layout& l, int microbatches) {
  return {l.pp, l.vpp, microbatches, std::min(l.group_size(), microbatches),
          l.overlap_moe_expert_parallel_comm};
}

Layout mesh_of(const Layout& l) {
  const Layout plain;
  Layout m = l;
  m.dispatcher = plain.dispatcher;
  m.dispatcher_num_sms = plain.dispatcher_num_sms;
  m.overlap_moe_expert_parallel_comm = m.delay_wgrad_compute = m.moe_shared_expert_overlap = false;
  m.recompute_granularity = plain.recompute_granularity;
  m.recompute_method = plain.recompute_method;
  m.recompute_num_layers = 0;
  m.recompute_modules = {};
  m.offload_modules = {};
  m.offload_fraction = 1;
  m.cpu_offloading_num_layers = 0;
  m.cuda_graph_impl = plain.cuda_graph_impl;
  m.cuda_graph_scope = {};
  m.overlap_grad_reduce = m.overlap_param_gather = true;
  m.tp_comm_overlap = false;
  m.cp_comm_type = plain.cp_comm_type;
  return m;
}

namespace {

StageCounts count_stage(const Problem& p, const Stage& stage) {
  StageCounts s;
  s.layers.assign(p.classes.size(), 0);
  s.embedding = stage.embedding;
  s.loss = stage.loss;
  const auto add = [&](int cls) {
    if (s.runs.empty() || s.runs.back().cls != cls) s.runs.push_back({cls, 0});
    ++s.runs.back().count;
    ++s.layers[static_cast<std::size_t>(cls)];
    ++s.total;
  };
  for (const int layer : stage.layers) add(p.class_of_layer[static_cast<std::size_t>(layer)]);
  s.mtp_depths = stage.mtp ? p.model.mtp_num_layers : 0;
  for (int d = 0; d < s.mtp_depths; ++d) {
    for (const int cls : p.mtp_classes) add(cls);
  }
  return s;
}

/// The in-flight pattern repeats with every group of microbatches, so a few groups show every count
/// (tested against the full order).
int enough_microbatches(const ScheduleShape& s) {
  const int few = 4 * s.group + 2 * s.pp;
  if (s.microbatches <= few) return s.microbatches;
  const int rest = s.microbatches % s.group;
  return rest + (few / s.group + 1) * s.group;
}

Alive alive_of(ScheduleShape s, bool overlap) {
  s.overlap = overlap;
  Alive alive(s.vpp);
  for (int r = 0; r < s.pp; ++r) alive.add_rank(alive_vectors(s, r));
  return alive;
}

/// Numbers ranks so that those with the same contents share a number; rank 0 is a kind of its own.
std::vector<int> number_ranks(const Pipeline& t) {
  const int vpp = t.plan.vpp;
  std::vector<int> kind;
  for (int r = 0; r < t.plan.pp; ++r) {
    const auto first = t.content.begin() + r * vpp;
    int same = 1;
    while (same < r && !std::equal(first, first + vpp, t.content.begin() + same * vpp)) ++same;
    kind.push_back(same < r ? kind[static_cast<std::size_t>(same)] : r);
  }
  return kind;
}

void add_work(Work& work, const StageCounts& s) {
  for (std::size_t c = 0; c < s.layers.size(); ++c) work[kStageEnds + c] += s.layers[c];
  work[kEmbedding] += s.embedding ? 1 : 0;
  work[kHead] += s.mtp_depths + (s.loss ? 1 : 0);
  work[kMtpExtra] += s.mtp_depths;
}

std::vector<Pipeline::Busy> busiest_ranks(const Pipeline& t) {
  const int pp = t.plan.pp, vpp = t.plan.vpp;
  std::vector<Pipeline::Busy> all;
  Work before{};
  for (int r = 0; r < pp; ++r) {
    Pipeline::Busy busy;
    busy.before = before;
    for (int c = 0; c < vpp; ++c)
      add_work(busy.work, t.stages[static_cast<std::size_t>(r * vpp + c)]);
    add_work(before, t.stages[static_cast<std::size_t>(r * vpp)]);
    // what comes before only grows: of ranks with the same work the last is the busiest
    std::erase_if(all, [&](const Pipeline::Busy& b) { return b.work == busy.work; });
    all.push_back(busy);
  }
  return all;
}

std::vector<int> fullest_ranks(const Pipeline& t) {
  std::vector<int> kept;
  for (int r = 0; r < t.plan.pp; ++r) {
    const bool less = std::any_of(kept.begin(), kept.end(), [&](int other) {
      return t.kind[static_cast<std::size_t>(other)] == t.kind[static_cast<std::size_t>(r)] &&
             t.alive.below(r, other) && t.alive_overlap.below(r, other);
    });
    if (!less) kept.push_back(r);
  }
  return kept;
}

bool exceeds(const InFlight::Row& a, const InFlight::Row& b) {
  for (std::size_t c = 0; c < a.layers.size(); ++c) {
    if (a.layers[c] < b.layers[c]) return false;
  }
  return a.mtp_depths >= b.mtp_depths;
}

InFlight in_flight_of(const Problem& p, const Pipeline& t, const Alive& alive) {
  const int vpp = t.plan.vpp;
  InFlight all;
  for (int r = 0; r < t.plan.pp; ++r) {
    auto& rows = all.rows.emplace_back();
    double& moe_layers = all.moe_layers.emplace_back(0);
    for (std::size_t v = 0; v < alive.size(r); ++v) {
      InFlight::Row row;
      row.vector = v;
      double moe = 0;
      for (int c = 0; c < vpp; ++c) {
        const StageCounts& s = t.stages[static_cast<std::size_t>(r * vpp + c)];
        const double count = alive.vector(r, v)[c];
        row.mtp_depths += count * s.mtp_depths;
        for (std::size_t k = 0; k < s.layers.size(); ++k) {
          row.layers[k] += count * s.layers[k];
          if (p.classes[k].ffn == FfnKind::moe) moe += count * s.layers[k];
        }
      }
      moe_layers = std::max(moe_layers, moe);
      const auto exceeded = [&](const InFlight::Row& known) { return exceeds(known, row); };
      if (std::any_of(rows.begin(), rows.end(), exceeded)) continue;
      std::erase_if(rows, [&](const InFlight::Row& known) { return exceeds(row, known); });
      rows.push_back(row);
    }
  }
  return all;
}

Pipeline::Distinct distinct_of(const std::vector<int>& content, int vpp) {
  Pipeline::Distinct d;
  const auto place = [](auto& known, const auto& item) {
    const auto at = std::find(known.begin(), known.end(), item);
    const auto index = static_cast<std::size_t>(at - known.begin());
    if (at == known.end()) known.push_back(item);
    return index;
  };
  std::vector<int> contents;
  for (std::size_t i = 0; i < content.size(); ++i) {
    d.of_stage.push_back(place(contents, content[i]));
    if (contents.size() > d.stages.size()) d.stages.push_back(static_cast<int>(i));
  }
  const auto chunks = static_cast<std::size_t>(vpp);
  for (std::size_t f = 0; f < content.size(); ++f) {
    for (std::size_t c = 0; c < chunks; ++c) {
      d.of_pair.push_back(
          place(d.pairs, std::pair(d.of_stage[f], d.of_stage[f / chunks * chunks + c])));
    }
  }
  d.stage_count.resize(d.stages.size());
  d.pair_count.resize(d.pairs.size());
  for (const std::size_t i : d.of_stage) ++d.stage_count[i];
  for (const std::size_t i : d.of_pair) ++d.pair_count[i];
  return d;
}

Pipeline make_pipeline(const Problem& p, PipelinePlan plan, const ScheduleShape& s,
                       MeshCache& cache) {
  Pipeline t(s.vpp);
  t.plan = std::move(plan);
  for (int r = 0; r < s.pp; ++r) {
    for (int c = 0; c < s.vpp; ++c) t.stages.push_back(count_stage(p, t.plan.at(r, c)));
  }
  for (const StageCounts& stage : t.stages) {
    t.content.push_back(
        cache.contents.try_emplace(stage, static_cast<int>(cache.contents.size())).first->second);
  }
  for (int r = 0; r < s.pp; ++r) t.held.push_back(rank_contents(p, t.plan, r));
  t.kind = number_ranks(t);
  t.distinct = distinct_of(t.content, s.vpp);
  const auto known = cache.alive.find({s.pp, s.vpp, s.microbatches, s.group});
  const auto& alive = known != cache.alive.end()
                          ? known->second
                          : cache.alive
                                .emplace(std::tuple(s.pp, s.vpp, s.microbatches, s.group),
                                         std::pair(alive_of(s, false), alive_of(s, true)))
                                .first->second;
  std::tie(t.alive, t.alive_overlap) = alive;
  t.fullest = fullest_ranks(t);
  t.in_flight = in_flight_of(p, t, t.alive);
  t.in_flight_overlap = in_flight_of(p, t, t.alive_overlap);
  for (int r = 0; r < s.pp; ++r) {
    auto& layers = t.layers.emplace_back();
    for (int c = 0; c < s.vpp; ++c) {
      const StageCounts& stage = t.stages[static_cast<std::size_t>(r * s.vpp + c)];
      for (std::size_t k = 0; k < stage.layers.size(); ++k) layers[k] += stage.layers[k];
    }
  }
  t.busiest = busiest_ranks(t);
  return t;
}

Result<std::shared_ptr<const Pipeline>> pipeline_of(const Problem& p, const Layout& l,
                                                    int microbatches, MeshCache& cache,
                                                    const PipelinePlan* given) {
  ScheduleShape s = schedule_shape(l, microbatches);
  s.microbatches = enough_microbatches(s);
  if (given != nullptr) return std::make_shared<const Pipeline>(make_pipeline(p, *given, s, cache));
  auto& slot = cache.pipelines[{s.pp, s.vpp, l.pipeline_split, s.microbatches, s.group}];
  if (!slot) {
    auto plan = plan_pipeline(p.model, l, p.run.pipeline_model_parallel_layout, p.seq_length);
    if (!plan) return plan.problems();
    if (plan.value().pp != s.pp || plan.value().vpp != s.vpp) {
      return Diagnostic{"",
                        0,
                        0,
                        "layout.pipeline_model_parallel_layout",
                        fmt::format("has {} chunks on {} ranks; the layout wants {} on {}",
                                    plan.value().vpp, plan.value().pp, s.vpp, s.pp),
                        "change both together"};
    }
    slot = std::make_shared<const Pipeline>(make_pipeline(p, plan.take(), s, cache));
  }
  return slot;
}

}  // namespace

void Alive::add_rank(const std::vector<std::vector<int>>& vectors) {
  for (const auto& v : vectors) counts_.insert(counts_.end(), v.begin(), v.end());
  first_.push_back(counts_.size());
}

bool Alive::below(int rank, int other) const {
  const auto under = [&](const int* a, const int* b) {
    for (int c = 0; c < vpp_; ++c) {
      if (a[c] > b[c]) return false;
    }
    return true;
  };
  for (std::size_t i = 0; i < size(rank); ++i) {
    std::size_t j = 0;
    while (j < size(other) && !under(vector(rank, i), vector(other, j))) ++j;
    if (j == size(other)) return false;
  }
  return true;
}

double Pipeline::busy_bound(int microbatches, const Work& seconds) const {
  const std::size_t kinds = kStageEnds + stages.front().layers.size();
  double bound = 0;
  for (const Busy& b : busiest) {
    double sum = 0;
    for (std::size_t k = 0; k < kinds; ++k)
      sum += (microbatches * b.work[k] + b.before[k]) * seconds[k];
    bound = std::max(bound, sum);
  }
  return bound;
}

Diagnostics fill_mesh_tables(const Problem& p, const Layout& l, MeshCache& cache,
                             const PipelinePlan* plan, MeshTables& t) {
  t.mesh = mesh_of(l);
  t.microbatches = p.global_batch_size / (l.micro_batch_size * l.dp(p.world));
  if (t.microbatches < 1) {
    return {{"", 0, 0, "train.global_batch_size",
             "holds no microbatch for every data-parallel rank", ""}};
  }
  auto pipeline = pipeline_of(p, l, t.microbatches, cache, plan);
  if (!pipeline) return pipeline.problems();
  t.pipeline = pipeline.take();
  const ParamTables& parts = cache.params.try_emplace({l.tp, l.ep, l.etp}, p, l).first->second;
  const Dims dims = make_dims(p, shard_key(l));
  const auto ranks = static_cast<std::size_t>(l.pp);
  t.params.resize(ranks);
  t.states.resize(ranks);
  t.workspace.resize(ranks);
  t.least_tail = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto twin = static_cast<std::size_t>(t.pipeline->kind[r]);
    if (twin < r) {
      t.params[r] = t.params[twin];
      t.states[r] = t.states[twin];
      t.workspace[r] = t.workspace[twin];
      continue;
    }
    const int rank = static_cast<int>(r);
    t.params[r] = parts.rank(p, t.pipeline->held[r]);
    t.states[r] = rank_state(p, l, t.params[r], rank);
    t.workspace[r] = workspace_terms(p, l, dims, t.params[r], rank).total();
    t.least_tail = std::max(t.least_tail, optimizer_seconds(p, l, t.params[r]));
  }
  t.least_tail += step_fixed_seconds(p);
  t.outside = outside_allocator_terms(p, l).total();
  return {};
}

Result<MeshTables> make_mesh_tables(const Problem& p, const Layout& l, MeshCache& cache,
                                    const PipelinePlan* plan) {
  MeshTables t;
  Diagnostics problems = fill_mesh_tables(p, l, cache, plan, t);
  if (!problems.empty()) return problems;
  return t;
}

}  // namespace moecast
