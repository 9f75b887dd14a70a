#include "estimate/step_tail.hpp"

#include <algorithm>

#include "estimate/rank_state.hpp"
#include "layout/rank_groups.hpp"

namespace moecast {
namespace {

constexpr double kBucketElements = 134217728;  // Bridge comm_overlap default bucket_size

double gradient_bytes(const Layout& l) { return l.grad_dtype == DType::fp32 ? 4 : 2; }

const GroupSpan& span_of(const Problem& p, const Layout& l, GroupName g) {
  const GroupShape shape = group_shape(g, l, p.world);
  return p.cluster.span(shape.stride, shape.size);
}

/// Of a buffer whose first (last reduced) bucket cannot be split below `whole` elements: a bucket
/// holds whole parameters.
double share_of_bucket(double elements, double whole = 0) {
  return elements > 0 ? std::min(1.0, std::max(kBucketElements, whole) / elements) : 0;
}

/// A collective that hides under compute takes SMs from it.
double contention_seconds(const Problem& p, double hidden) {
  constexpr double kChannels = 16;  // NCCL's on NVLink and InfiniBand, one SM each
  return hidden * kChannels / p.system().gpu.sms * p.profile.calibration.contention_compute_per_sm;
}

}  // namespace

/// Memory traffic of the step, bytes per element. Shard: gradient norm, Adam reads g p m v and
/// writes p m v, cast of the new parameter; whole rank: scaling pass and clearing of the gradient
/// buffer.
double optimizer_seconds(const Problem& p, const Layout& l, const RankParams& params) {
  const double dp = l.distributed_optimizer ? static_cast<double>(l.dp(p.world)) * l.cp : 1;
  const double edp = l.distributed_optimizer ? std::max(1, l.edp(p.world)) : 1;
  const double shard = params.dense / dp + params.expert / edp;
  const double g = gradient_bytes(l);
  const double state = optimizer_bytes_per_param(l);
  const double cast = l.grad_dtype == DType::fp32 ? 0 : g + 4;
  const double on_gpu = 1 - l.optimizer_offload_fraction;
  // without TransformerEngine's multi-tensor kernels clipping, the check for infinities and the
  // copy to the model's parameters are passes of their own
  const double apart = p.features.transformer_engine ? 0 : 2 * g + g + 4;
  const double shard_bytes = g + cast + apart + on_gpu * (4 + 2 * state + 2);
  const double quantised = l.precision == Precision::bf16 ? 0
                                                          : (params.dense_linear + params.expert) *
                                                                (2 + linear_weight_bytes(p, l));
  const bool reduces = l.dp(p.world) * l.cp > 1;
  const double whole = params.total() * g * (reduces ? 3 : 1);
  const Prices prices = p.prices();
  double t =
      (prices.adam(shard_bytes * shard + whole) + prices.quantize(l.precision, quantised)).value *
      p.ablation.compute;
  if (l.optimizer_offload_fraction > 0) {
    const double moved = l.optimizer_offload_fraction * shard;
    t += moved * 16 / (p.profile.calibration.host_adam_gb_per_s * 1e9) +
         prices.host_copy(moved * (g + 2)).value;
  }
  return t;
}

double step_fixed_seconds(const Problem& p) {
  return p.profile.calibration.step_fixed_ms * 1e-3 * p.ablation.host * p.stack.host_factor;
}

TailCosts tail_costs(const Problem& p, const Layout& l, const RankParams& params) {
  const Prices prices = p.prices();
  const Collective op =
      l.distributed_optimizer ? Collective::reduce_scatter : Collective::all_reduce;
  const GroupSpan& dense = span_of(p, l, GroupName::dp_cp);
  const GroupSpan& expert = span_of(p, l, GroupName::edp);
  const double g = gradient_bytes(l), w = param_gather_bytes(p, l), free = p.ablation.communication;
  TailCosts t;
  // dense and expert buffers have their own communicators but share the NICs: their times add
  const double dense_reduce = prices.collective(op, params.dense * g, dense).value * free;
  const double expert_reduce = prices.collective(op, params.expert * g, expert).value * free;
  t.reduce = dense_reduce + expert_reduce;
  t.reduce_bucket = dense_reduce * share_of_bucket(params.dense, params.embedding) +
                    expert_reduce * share_of_bucket(params.expert);
  if (l.distributed_optimizer) {
    const double dense_gather =
        prices.collective(Collective::all_gather, params.dense * w, dense).value * free;
    const double expert_gather =
        prices.collective(Collective::all_gather, params.expert * w, expert).value * free;
    t.gather = dense_gather + expert_gather;
    t.gather_bucket = dense_gather * share_of_bucket(params.dense, params.embedding) +
                      expert_gather * share_of_bucket(params.expert);
  }
  t.optimizer = optimizer_seconds(p, l, params);
  return t;
}

namespace {

/// End of a rank's gradient reduction.
double reduce_end(const Layout& l, const TailCosts& c, const RankTimeline& rank, int pp_rank,
                  double last_backward) {
  const double end = rank.end;
  if (c.reduce <= 0) return end;
  if (!l.overlap_grad_reduce) return end + c.reduce;
  if (l.pp == 1) return end + std::max(c.reduce_bucket, c.reduce - last_backward);
  if (l.vpp == 1) {
    // stage 0 overlaps with the last microbatch's backward; the others launch everything after it,
    // in their trailing bubble
    return pp_rank == 0 ? end + std::max(c.reduce_bucket, c.reduce - last_backward)
                        : end + c.reduce;
  }
  // interleaved: each chunk's collective starts when the chunk's last backward is done
  const double per_chunk = c.reduce / l.vpp;
  double free = 0;
  for (int chunk = l.vpp - 1; chunk >= 0; --chunk) {
    free = std::max(free, rank.last_backward_end[static_cast<std::size_t>(chunk)]) + per_chunk;
  }
  return std::max(end, free);
}

}  // namespace

StepTail step_tail(const Problem& p, const Layout& l, const std::vector<TailCosts>& costs,
                   const Walk& timeline, const std::vector<double>& forward0,
                   const std::vector<double>& backward0, StepTail t) {
  t.reduced.clear();
  t.synced = t.optimizer = t.gather_exposed = 0;
  for (int r = 0; r < l.pp; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const double end = reduce_end(l, costs[i], timeline.ranks[i], r, backward0[i]);
    const double hidden = std::max(0.0, timeline.ranks[i].end + costs[i].reduce - end);
    t.reduced.push_back(end + contention_seconds(p, hidden));
    t.synced = std::max(t.synced, t.reduced.back());
    t.optimizer = std::max(t.optimizer, costs[i].optimizer);
    double gather = costs[i].gather;
    if (l.overlap_param_gather && gather > 0) {
      // the first bucket (one chunk beyond the first rank) is waited for; the rest hides under the
      // first forward and, on later ranks, in the bubble before it
      const double window = forward0[i] * (1 + r);
      gather = r == 0 ? std::max(costs[i].gather_bucket, gather / l.vpp - window)
                      : std::max(0.0, gather / l.vpp - window);
    }
    t.gather_exposed = std::max(t.gather_exposed, gather);
  }
  t.fixed = step_fixed_seconds(p);
  t.step = t.synced + t.optimizer + t.gather_exposed + t.fixed;
  return t;
}

}  // namespace moecast
