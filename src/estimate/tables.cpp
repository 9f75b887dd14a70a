#include "estimate/tables.hpp"

#include <algorithm>

#include "estimate/step_tail.hpp"
#include "layout/pipeline_plan.hpp"

namespace moecast {

OpSums sum_ops(const std::vector<Op>& ops, std::uint16_t only_recomputed_by) {
  OpSums s;
  for (const Op& op : ops) {
    if (only_recomputed_by != 0 && (op.recompute & only_recomputed_by) == 0) continue;
    if (op.cls == OpClass::ep_comm) {
      s.ep += op.gpu.value;
    } else if (is_communication(op.cls)) {
      s.other += op.gpu.value;
    } else if (op.shared) {
      s.shared += op.gpu.value;
    } else if (op.part == Part::combine) {
      s.side += op.gpu.value;
    } else {
      s.compute += op.gpu.value;
    }
  }
  return s;
}

const ClassUnder& ClassTable::under(std::uint16_t recompute, std::uint16_t offload) const {
  for (const auto& u : under_) {
    if (u->recompute == recompute && u->offload == offload) return *u;
  }
  auto u = std::make_unique<ClassUnder>();
  u->recompute = recompute;
  u->offload = offload;
  u->stored = memory.stored(recompute);
  u->offloadable = memory.offloadable(recompute, offload);
  if (recompute != 0) u->again = sum_ops(ops.forward, recompute);
  under_.push_back(std::move(u));
  return *under_.back();
}

ShardTables make_shard_tables(const Problem& p, const ShardKey& k) {
  ShardTables t;
  t.dims = make_dims(p, k);
  for (const LayerKind& kind : p.classes) {
    ClassTable c;
    c.ops = layer_ops(p, k, kind);
    c.memory = layer_memory(p, k, kind);
    c.forward = sum_ops(c.ops.forward);
    c.backward = sum_ops(c.ops.backward);
    t.classes.push_back(std::move(c));
  }
  t.embedding = embedding_ops(p, k);
  t.head = head_ops(p, k);
  t.mtp_extra = mtp_extra_ops(p, k);
  t.embedding_forward = sum_ops(t.embedding.forward);
  t.embedding_backward = sum_ops(t.embedding.backward);
  t.head_forward = sum_ops(t.head.forward);
  t.head_backward = sum_ops(t.head.backward);
  t.mtp_forward = sum_ops(t.mtp_extra.forward);
  t.mtp_backward = sum_ops(t.mtp_extra.backward);
  t.head_memory = head_memory(p, k);
  return t;
}

namespace {

/// Numbers stages so that equal contents share a number.
std::vector<int> number_contents(const std::vector<StageCounts>& stages) {
  std::vector<int> content;
  std::vector<const StageCounts*> kinds;
  for (const StageCounts& s : stages) {
    const auto same =
        std::find_if(kinds.begin(), kinds.end(), [&](const StageCounts* k) { return *k == s; });
    content.push_back(static_cast<int>(same - kinds.begin()));
    if (same == kinds.end()) kinds.push_back(&s);
  }
  return content;
}

}  // namespace

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
  for (const int layer : stage.layers)
    s.order.push_back(p.class_of_layer[static_cast<std::size_t>(layer)]);
  if (stage.mtp) {
    s.mtp_depths = p.model.mtp_num_layers;
    for (int d = 0; d < s.mtp_depths; ++d)
      s.order.insert(s.order.end(), p.mtp_classes.begin(), p.mtp_classes.end());
  }
  for (const int c : s.order) ++s.layers[static_cast<std::size_t>(c)];
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

MeshCache::Alive alive_per_rank(const ScheduleShape& s) {
  MeshCache::Alive all;
  for (int r = 0; r < s.pp; ++r) all.push_back(alive_vectors(s, r));
  return all;
}

const std::pair<MeshCache::Alive, MeshCache::Alive>& alive_of(ScheduleShape s, MeshCache& cache) {
  s.microbatches = enough_microbatches(s);
  const auto [at, fresh] = cache.alive.try_emplace({s.pp, s.vpp, s.microbatches, s.group});
  if (fresh) {
    s.overlap = false;
    at->second.first = alive_per_rank(s);
    s.overlap = true;
    at->second.second = alive_per_rank(s);
  }
  return at->second;
}

Result<PipelinePlan> plan_of(const Problem& p, const Layout& l, MeshCache& cache) {
  const std::tuple key{l.pp, l.vpp, l.pipeline_split};
  if (const auto known = cache.plans.find(key); known != cache.plans.end()) return known->second;
  auto plan = plan_pipeline(p.model, l, p.run.pipeline_model_parallel_layout, p.seq_length);
  if (plan) cache.plans.emplace(key, plan.value());
  return plan;
}

}  // namespace

Result<MeshTables> make_mesh_tables(const Problem& p, const Layout& l, MeshCache& cache) {
  MeshTables t;
  t.mesh = mesh_of(l);
  auto plan = plan_of(p, l, cache);
  if (!plan) return plan.problems();
  t.plan = plan.take();
  t.microbatches = p.global_batch_size / (l.micro_batch_size * l.dp(p.world));
  if (t.microbatches < 1) {
    return Diagnostic{
        "", 0, 0, "train.global_batch_size", "holds no microbatch for every data-parallel rank",
        ""};
  }
  for (int r = 0; r < l.pp; ++r) {
    for (int c = 0; c < l.vpp; ++c) t.stages.push_back(count_stage(p, t.plan.at(r, c)));
    t.params.push_back(rank_params(p, l, t.plan, r));
    t.states.push_back(rank_state(p, l, t.params.back(), r));
    t.least_tail = std::max(t.least_tail, optimizer_seconds(p, l, t.params.back()));
  }
  t.least_tail += step_fixed_seconds(p);
  t.content = number_contents(t.stages);
  const auto& [plain, overlapped] = alive_of(schedule_shape(l, t.microbatches), cache);
  t.alive = plain;
  t.alive_overlap = overlapped;
  return t;
}

}  // namespace moecast
