#include "estimate/rank_state.hpp"

#include <algorithm>

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

bool reuses_grad_buffer(const Problem& p, const Layout& l) {
  return l.precision == Precision::mxfp8 && gathers_quantised(p, l) && l.fsdp == FsdpSharding::none;
}

/// Megatron-Bridge carries an fp8_recipe in every mixed-precision block, so a precision-aware
/// optimizer with fp32 master still casts gradients to fp32 and stores the full master (memory.md
/// section 2, "Bridge consequence").
bool casts_gradients(const Layout& l) { return l.grad_dtype != DType::fp32; }

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
      return (reuses_grad_buffer(p, l) ? 0 : 2) + 2 * copy;
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

double optimizer_bytes_per_param(const Problem& p, const Layout& l) {
  (void)p;
  const double moments = 2 * bytes_of(l.precision_aware_optimizer ? l.moment_dtype : DType::fp32);
  const double master = l.precision_aware_optimizer ? bytes_of(l.master_dtype) : 4;
  return master + moments;
}

RankState rank_state(const Problem& p, const Layout& l, const RankParams& params) {
  const double dp = l.distributed_optimizer ? static_cast<double>(l.dp(p.world)) * l.cp : 1;
  const double edp = l.distributed_optimizer ? std::max(1, l.edp(p.world)) : 1;
  const double shard = params.dense / dp + params.expert / edp;
  const double linears = params.dense_linear + params.expert;
  RankState s;
  s.weights = linear_weight_bytes(p, l) * linears + 2 * (params.total() - linears);
  s.gradients = bytes_of(l.grad_dtype) * params.total();
  s.optimizer = optimizer_bytes_per_param(p, l) * shard;
  if (casts_gradients(l)) s.gradient_cast = 4 * shard;
  if (l.optimizer_offload_fraction > 0) {
    // moments move to pinned host memory; the fp32 master shard stays as copy target
    // (hybrid_optimizer.py)
    const double moved = l.optimizer_offload_fraction * shard;
    s.optimizer -= 2 * bytes_of(l.precision_aware_optimizer ? l.moment_dtype : DType::fp32) * moved;
    s.host = (12 + 4) * moved;
  }
  if (l.fsdp == FsdpSharding::optim_grads_params) {
    // weights and gradients are sharded too; a double buffer of two gathered layers stays whole
    const double full_dp = static_cast<double>(l.dp(p.world)) * l.cp;
    const double layers = std::max<double>(1, static_cast<double>(p.model.layers.size()) / l.pp);
    const double unit = (params.dense / full_dp + params.expert / edp) / params.total();
    s.weights = s.weights * unit + 2 * 2 * params.total() / layers;
    s.gradients = s.gradients * unit + 2 * bytes_of(l.grad_dtype) * params.total() / layers;
  }
  return s;
}

namespace {

/// DeepEP legacy buffers: NVLink and RDMA rings of every channel (two SMs each). Ref: DeepEP
/// csrc/legacy/config.hpp.
double deepep_bytes(const Layout& l, double hidden, int sms) {
  const int group = l.etp * l.ep;
  if (group <= 1) return 0;
  const double channels = sms / 2.0, row = 2 * hidden;
  const double peers = std::min(group, 8), nodes = std::max(group / 8, 1);
  const double nvl_recv = group <= 8     ? 256
                          : group <= 64  ? 288
                          : group <= 96  ? 480
                          : group <= 128 ? 560
                                         : 720;
  const double per_token = row + 8 + 128 * 8 + 128 * 4 + 128 * 4;
  double bytes = channels * peers * (2 * nodes + 3) * 4 + channels * peers * nvl_recv * per_token;
  if (group > 8)
    bytes += channels * nodes * 18 * 2 * 4 + channels * nodes * 128 * 2 * (per_token + 16);
  return bytes;
}

/// HybridEP: the worst case that every token of the group lands on one rank. Ref: DeepEP hybrid-ep
/// csrc/hybrid_ep.
double hybridep_bytes(const Problem& p, const Layout& l, const Dims& d) {
  const int group = l.etp * l.ep;
  const GroupSpan& span = p.cluster.span(1, group);
  const double tokens = std::max(64.0, d.n), all = tokens * group, h = d.expert_width;
  const double domain = span.ranks_per_domain, probs = d.local_experts * domain * 4;
  double bytes = all * h * 2 + all * probs + all * (h / 128) * 4;
  const double domains = group / domain;
  if (domains > 1) {
    const double E = p.model.moe.num_moe_experts;
    bytes += tokens * (h * 2 + E * 4 + h / 128 * 4) +
             tokens * (domains - 1) * (h * 2 + probs + h / 128 * 4);
    bytes += 2 * tokens * (domains - 1) * (h * 2 + probs);
  }
  return bytes;
}

}  // namespace

double dispatcher_buffer_bytes(const Problem& p, const Layout& l, const Dims& d) {
  if (p.model.moe.num_moe_experts == 0) return 0;
  const int sms = l.dispatcher_num_sms > 0 ? l.dispatcher_num_sms : default_num_sms(l.dispatcher);
  switch (l.dispatcher) {
    case Dispatcher::alltoall:
      return 0;  // transient: counted at the combine moment
    case Dispatcher::allgather:
      return 2 * d.n * l.etp * l.ep * d.expert_width;
    case Dispatcher::deepep:
      return deepep_bytes(l, d.expert_width, sms);
    case Dispatcher::hybridep:
      return hybridep_bytes(p, l, d);
  }
  return 0;
}

double workspace_bytes(const Problem& p, const Layout& l, const Dims& d, const RankParams& params,
                       int pp_rank) {
  constexpr double kMib = 1024.0 * 1024.0;
  const bool te = p.features.transformer_engine;
  double bytes = 64 * kMib;  // cuBLAS of torch and TE, 32 MiB each
  if (te && p.model.moe.num_moe_experts > 0) bytes += 128 * kMib;  // four streams of grouped GEMM
  bytes += 2 * params.dummy_wgrad;
  if (l.sp()) bytes += 2 * d.h * d.N;       // persistent gather buffer
  if (pp_rank > 0) bytes += 2 * d.h * d.n;  // input gradient of the previous microbatch
  return bytes;
}

double outside_allocator_bytes(const Problem& p, const Layout& l) {
  const int dp = l.dp(p.world), edp = l.edp(p.world);
  int communicators = p.world > 1 ? 1 : 0;
  for (const int size : {l.tp, l.cp, dp * l.cp, l.pp, l.ep, l.etp * l.ep, edp})
    communicators += size > 1 ? 1 : 0;
  return p.stack.context.value + communicators * p.stack.communicator.value;
}

}  // namespace moecast
