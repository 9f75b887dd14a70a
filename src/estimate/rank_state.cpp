#include "estimate/rank_state.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moecast {
namespace {

double bytes_of(DType t) {
  switch (t) {
    case DType::fp32:
      return 4;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::fp8:
      return 1;
  }
  return 4;
}

/// Bridge's presets switch fp8_param_gather on for every quantised recipe but blockwise.
bool gathers_quantised(const Problem& p, const Layout& l) {
  if (p.features.fp8_param_gather != Tristate::automatic)
    return p.features.fp8_param_gather == Tristate::on;
  return l.precision != Precision::bf16 && l.precision != Precision::fp8_blockwise;
}

/// The optimizer step casts a BF16 gradient shard to fp32. Only a precision-aware optimizer reads
/// it as it is, and only with a master below fp32 or on the CPU: Megatron-Bridge carries an
/// fp8_recipe in every mixed-precision block, which switches that path off for an fp32 master.
/// Ref: megatron/core/optimizer/optimizer_config.py use_precision_aware_optimizer_no_fp8_or_ds_fp8.
bool casts_gradients(const Layout& l) {
  if (l.grad_dtype == DType::fp32) return false;
  return !l.precision_aware_optimizer ||
         (l.master_dtype == DType::fp32 && l.optimizer_offload_fraction == 0);
}

/// FP8 weights are made from the masters through BF16: TransformerEngine casts the masters of all
/// weights of an optimizer before it quantises the first (dense and expert weights have an
/// optimizer each). MXFP8's parameters pass through the gradient buffer instead, unless FSDP
/// shards them. Ref: TransformerEngine pytorch/tensor/utils.py cast_master_weights_to_fp8, called
/// by megatron/core/optimizer/distrib_optimizer.py _copy_main_params_to_model_params and by
/// megatron_fsdp/mixed_precision.py fp8_quantize; peaks of step 1 in Megatron-Bridge PR 3107.
bool casts_masters(const Problem& p, const Layout& l) {
  const bool bf16_already = l.precision_aware_optimizer && l.master_dtype == DType::bf16;
  const bool in_gradients = l.precision == Precision::mxfp8 && l.fsdp == FsdpSharding::none;
  return l.distributed_optimizer && gathers_quantised(p, l) && l.precision != Precision::bf16 &&
         !in_gradients && !bf16_already;
}

double moment_bytes(const Layout& l) {
  return bytes_of(l.precision_aware_optimizer ? l.moment_dtype : DType::fp32);
}
double master_bytes(const Layout& l) {
  return l.precision_aware_optimizer ? bytes_of(l.master_dtype) : 4;
}

}  // namespace

double linear_weight_bytes(const Problem& p, const Layout& l) {
  const bool gather = gathers_quantised(p, l);
  const double copy = operand_bytes(l.precision);
  const bool hopper = p.system().gpu.compute_capability < 10;
  switch (l.precision) {
    case Precision::bf16:
      return 2;
    case Precision::fp8_delayed:
    case Precision::fp8_tensorwise:
      return (gather ? 0 : 2) + copy * (hopper ? 2 : 1);
    case Precision::fp8_blockwise:
      return 2 + 2 * (1 + 4.0 / 16384);
    case Precision::mxfp8:
    case Precision::nvfp4:
      return (gather ? 0 : 2) + 2 * copy;
  }
  return 2;
}

double param_gather_bytes(const Problem& p, const Layout& l) {
  if (!gathers_quantised(p, l)) return 2;
  switch (l.precision) {
    case Precision::fp8_delayed:
    case Precision::fp8_tensorwise:
      return 1;
    case Precision::nvfp4:
      return 0.5;
    default:
      return 2;
  }
}

double optimizer_bytes_per_param(const Layout& l) { return master_bytes(l) + 2 * moment_bytes(l); }

double bucket_padding(double elements, int shards, double buckets) {
  if (elements <= 0 || shards <= 1) return 0;
  const auto unit = static_cast<double>(std::lcm(shards, 128));
  const double bucket = elements / buckets;
  return buckets * (std::ceil(bucket / unit) * unit - bucket);
}

namespace {

struct Shards {
  int dense = 1, expert = 1;
};
Shards shards_of(const Problem& p, const Layout& l) {
  return {l.dp(p.world) * l.cp, std::max(1, l.edp(p.world))};
}

/// Buckets of a buffer: one on later pipeline ranks, else Bridge's 128 Mi elements (which its
/// overlap of the gradient reduction sets).
double buckets_of(double elements, int pp_rank) {
  constexpr double kBucket = 134217728;
  if (pp_rank > 0) return 1;
  return std::max(1.0, std::ceil(elements / kBucket));
}

void add_gradients(Terms& t, const Layout& l, const RankParams& r, const Shards& n, int pp_rank) {
  const double b = bytes_of(l.grad_dtype);
  t.add("dense gradient buffer", b * r.dense, r.dense, "grad_dtype bytes per element");
  t.add("expert gradient buffer", b * r.expert, r.expert, "grad_dtype bytes per element");
  if (!l.distributed_optimizer) return;
  const double padding = bucket_padding(r.dense, n.dense, buckets_of(r.dense, pp_rank)) +
                         bucket_padding(r.expert, n.expert, buckets_of(r.expert, pp_rank));
  t.add("bucket padding", b * padding, padding, "buckets end at multiples of lcm(D, 128)");
}

void add_weights(Terms& t, const Problem& p, const Layout& l, const RankParams& r) {
  const double linear = linear_weight_bytes(p, l);
  const double other = r.dense - r.dense_linear - r.embedding - r.output_layer;
  t.add("expert linears", linear * r.expert, r.expert, "compute-weight bytes per element");
  t.add("dense linears", linear * r.dense_linear, r.dense_linear,
        "compute-weight bytes per element");
  t.add("word embedding", 2 * r.embedding, r.embedding, "2 V h / t");
  t.add("output layer", 2 * r.output_layer, r.output_layer, "2 V h / t");
  t.add("norms, router, gates", 2 * other, other, "2 B per element");
}

/// FSDP shards weights and gradients too; two gathered layers (double buffer) stay whole.
void shard_by_fsdp(RankStateTerms& t, const Problem& p, const Layout& l, const RankParams& r,
                   const Shards& n) {
  const double layers = std::max<double>(1, static_cast<double>(p.model.layers.size()) / l.pp);
  const double unit = (r.dense / n.dense + r.expert / n.expert) / r.total();
  const double weights = t.weights.total(), gradients = t.gradients.total();
  t.weights = {};
  t.gradients = {};
  t.weights.add("shard of the weights", weights * unit, r.total() * unit, "weights / D");
  t.weights.add("two gathered layers", 2 * 2 * r.total() / layers, 2 * r.total() / layers,
                "2 B, double buffer");
  t.gradients.add("shard of the gradients", gradients * unit, r.total() * unit, "gradients / D");
  t.gradients.add("two layers before reduction", 2 * bytes_of(l.grad_dtype) * r.total() / layers,
                  2 * r.total() / layers, "grad_dtype, double buffer");
}

}  // namespace

RankStateTerms rank_state_terms(const Problem& p, const Layout& l, const RankParams& r,
                                int pp_rank) {
  const Shards n = shards_of(p, l);
  const double shard =
      l.distributed_optimizer ? r.dense / n.dense + r.expert / n.expert : r.total();
  const double moment = moment_bytes(l), moved = l.optimizer_offload_fraction * shard;
  RankStateTerms t;
  add_weights(t.weights, p, l, r);
  add_gradients(t.gradients, l, r, n, pp_rank);
  t.master.add("master weights", master_bytes(l) * shard, shard,
               "dense / (DP CP) + expert / EDP elements");
  t.moments.add("exp_avg", moment * (shard - moved), shard - moved, "moment_dtype");
  t.moments.add("exp_avg_sq", moment * (shard - moved), shard - moved, "moment_dtype");
  // an offloaded share's moments and a second master live in pinned host memory with the gradients'
  // copy; the fp32 master shard stays on the GPU as the copy's target (hybrid_optimizer.py)
  t.host.add("offloaded optimizer state", 12 * moved, moved, "master, exp_avg, exp_avg_sq in fp32");
  t.host.add("offloaded gradients", 4 * moved, moved, "fp32 copy");
  if (casts_gradients(l)) {
    t.optimizer_step.add("gradient shard in fp32", 4 * shard, shard,
                         "4 B per element of the shard");
  }
  const double quantised = std::max(r.dense_linear / n.dense, r.expert / n.expert);
  if (casts_masters(p, l)) {
    t.optimizer_step.add("masters of quantised weights in BF16", 2 * quantised, quantised,
                         "2 B per element of the shard, dense or expert");
  }
  if (l.fsdp == FsdpSharding::optim_grads_params) shard_by_fsdp(t, p, l, r, n);
  return t;
}

RankState rank_state(const Problem& p, const Layout& l, const RankParams& params, int pp_rank) {
  const RankStateTerms t = rank_state_terms(p, l, params, pp_rank);
  RankState s;
  s.weights = t.weights.total();
  s.gradients = t.gradients.total();
  s.moments = t.moments.total();
  s.optimizer = t.master.total() + s.moments;
  s.host = t.host.total();
  s.optimizer_step = t.optimizer_step.total();
  return s;
}

}  // namespace moecast
