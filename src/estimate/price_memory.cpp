// Memory-bound kernels and attention.
// Memory-bound: t = floor + bytes / (HBM x fraction of the class).
// Attention: t = t0 + max(FLOPs (1 + s_half / s) / (BF16 peak x efficiency), bytes / HBM); causal
// forward FLOPs = 2 b h s_q context (d_qk + d_v), backward 2.5 x (flash kernels recompute the
// scores: 5 matmuls against 2). Fitted to NVIDIA aiconfigurator's context-attention tables
// (forward) and SimuMax's TE samples (backward).
#include <algorithm>

#include "estimate/prices.hpp"

namespace moecast {
namespace {

HeadClass head_class(double qk_dim) {
  if (qk_dim <= 96) return HeadClass::d64;
  if (qk_dim <= 128) return HeadClass::d128;
  if (qk_dim <= 192) return HeadClass::d192;
  return HeadClass::d256;
}

Seconds streamed(const Prices& p, double bytes, double fraction) {
  const double rate = p.system->gpu.hbm_bandwidth.value * fraction / p.memory_factor;
  return seconds(p.calibration->kernel_floor_us * 1e-6 + bytes / rate);
}

}  // namespace

Seconds Prices::elementwise(double bytes) const {
  return streamed(*this, bytes, calibration->elementwise_fraction);
}
Seconds Prices::norm(double bytes) const {
  return streamed(*this, bytes, calibration->norm_fraction);
}
Seconds Prices::loss(double bytes) const {
  return streamed(*this, bytes, calibration->loss_fraction);
}
Seconds Prices::adam(double bytes) const {
  return streamed(*this, bytes, calibration->adam_fraction);
}
Seconds Prices::quantize(double bytes) const {
  return streamed(*this, bytes, calibration->quantize_fraction);
}
Seconds Prices::scan(double bytes) const {
  return streamed(*this, bytes, calibration->scan_bandwidth_fraction);
}
Seconds Prices::permute(double bytes, bool fused) const {
  return streamed(*this, bytes * (fused ? 1 : calibration->unfused_permute_factor),
                  calibration->permute_fraction);
}
Seconds Prices::small_kernels(double count) const {
  return seconds(count * calibration->kernel_floor_us * 1e-6);
}

Seconds Prices::attention(const AttentionShape& a, bool backward) const {
  const Gpu& gpu = system->gpu;
  const auto& e = calibration->attention[static_cast<std::size_t>(head_class(a.qk_dim))];
  const double forward_flops = 2 * a.batch * a.heads * a.seq_q * a.context * (a.qk_dim + a.v_dim);
  const double speed = (a.fp8 ? calibration->attention_fp8_speedup : 1) /
                       (a.sinks ? calibration->attention_sink_slowdown : 1);
  const double ramp = 1 + 0.5 * calibration->attention_s_half / std::max(a.context, 64.0);
  const double flops = forward_flops * ramp * (backward ? 2.5 : 1);
  const double rate =
      gpu.bf16.value * (backward ? e.backward_efficiency : e.forward_efficiency) * speed;
  const double io =
      2 * a.batch * a.seq_q * (a.heads + a.kv_heads) * (a.qk_dim + a.v_dim) * (backward ? 2.5 : 1);
  const double bytes_time = io / (gpu.hbm_bandwidth.value * calibration->elementwise_fraction);
  return seconds(calibration->attention_launch_us * 1e-6 * (backward ? 2 : 1) +
                 std::max(flops / rate, bytes_time));
}

Seconds Prices::unfused_attention(double scores, bool backward) const {
  return elementwise(scores * calibration->attention_unfused_bytes * (backward ? 2 : 1));
}

Seconds Prices::host_copy(double bytes) const {
  return seconds(bytes / (system->host_link_per_direction.value * calibration->host_link_fraction));
}

}  // namespace moecast
