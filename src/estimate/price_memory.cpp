// Memory-bound kernels and attention.
// Memory-bound: t = start + (bytes + rows x row_bytes) / (HBM x fraction) + bytes of a row / row
// rate, all of the kernel's class; the moves of a kernel that may use few SMs by a 2-norm of HBM
// and SMs (measured with 4 to 128 SMs of an H200). Attention: t = t0 + max((FLOPs (1 + s_half / s)
// + tail) / (BF16 peak x efficiency), bytes / HBM); causal forward FLOPs = 2 b h s_q context (d_qk
// + d_v). Priors are fitted to NVIDIA aiconfigurator's context-attention tables (forward) and
// SimuMax's TE samples (backward).
#include <algorithm>
#include <cmath>

#include "estimate/prices.hpp"
#include "topology/parameter_names.hpp"

namespace moecast {
namespace {

constexpr double kTileRows = 128;  // queries of one thread block of FlashAttention-3 and cuDNN

HeadClass head_class(double qk_dim) {
  if (qk_dim <= 96) return HeadClass::d64;
  if (qk_dim <= 128) return HeadClass::d128;
  if (qk_dim <= 192) return HeadClass::d192;
  return HeadClass::d256;
}

}  // namespace

const char* head_class_name(double qk_dim) {
  return kHeadNames[static_cast<std::size_t>(head_class(qk_dim))];
}

Seconds Prices::stream(Stream cls, double bytes, double rows) const {
  const StreamParameters& s = calibration->stream[static_cast<std::size_t>(cls)];
  const double rate = system->gpu.hbm_bandwidth.value * s.fraction / memory_factor;
  const double row_seconds = rows > 0 ? bytes / rows / (s.row_gb_per_s * 1e9) : 0;
  return seconds(s.start_us * 1e-6 + (bytes + rows * s.row_bytes) / rate + row_seconds);
}
Seconds Prices::move(Stream cls, double bytes, int sms) const {
  const Seconds free = stream(cls, bytes);
  if (sms <= 0) return free;
  const StreamParameters& s = calibration->stream[static_cast<std::size_t>(cls)];
  const double start = s.start_us * 1e-6;
  return seconds(start + std::hypot(free.value - start, bytes / (sms * s.gb_per_s_per_sm * 1e9)));
}
Seconds Prices::permute(double bytes, bool fused, int sms) const {
  return move(Stream::permute, bytes * (fused ? 1 : calibration->unfused_permute_factor), sms);
}
Seconds Prices::unpermute(double bytes, bool fused, int sms) const {
  return move(Stream::unpermute, bytes * (fused ? 1 : calibration->unfused_unpermute_factor), sms);
}
Seconds Prices::quantize(Precision p, double bytes, double tensors) const {
  if (p == Precision::bf16) return {};
  const int recipe = static_cast<int>(p) - static_cast<int>(Precision::fp8_delayed);
  const auto cls = static_cast<Stream>(static_cast<int>(Stream::fp8_delayed) + recipe);
  return stream(cls, bytes) + stream(cls, 0) * std::max(0.0, tensors - 1);
}
Seconds Prices::scan(double bytes) const {
  const double rate = system->gpu.hbm_bandwidth.value * calibration->scan_bandwidth_fraction;
  return seconds(calibration->kernel_floor_us * 1e-6 + bytes * memory_factor / rate);
}
Seconds Prices::small_kernels(double count) const {
  return seconds(count * calibration->kernel_floor_us * 1e-6);
}

double Prices::attention_flops(const AttentionShape& a, bool backward) {
  return 2 * a.batch * a.heads * a.seq_q * a.context * (a.qk_dim + a.v_dim) * (backward ? 2.5 : 1);
}
double Prices::attention_bytes(const AttentionShape& a, bool backward) {
  return 2 * a.batch * a.seq_q * (a.heads + a.kv_heads) * (a.qk_dim + a.v_dim) * (backward ? 2 : 1);
}

Seconds Prices::attention(const AttentionShape& a, bool backward) const {
  const Gpu& gpu = system->gpu;
  const auto& e = calibration->attention[static_cast<std::size_t>(head_class(a.qk_dim))];
  const double sinks = !a.sinks ? 1
                       : a.fp8  ? calibration->attention_sink_fp8_slowdown
                                : calibration->attention_sink_slowdown;
  const double speed = (a.fp8 ? calibration->attention_fp8_speedup : 1) / sinks;
  const double s_half = backward ? e.backward_s_half : e.forward_s_half;
  const double ramp = 1 + 0.5 * s_half / std::max(a.context, 64.0);
  // The causal triangle's longest rows end last: the other SMs wait for part of a tile over all
  // keys.
  const AttentionShape tile{1, kTileRows, 2 * a.context, 1, 1, a.qk_dim, a.v_dim, a.fp8, a.sinks};
  const double flops = attention_flops(a, backward) * ramp +
                       attention_flops(tile, backward) * calibration->attention_tail * gpu.sms;
  const double rate =
      clock * gpu.bf16.value * (backward ? e.backward_efficiency : e.forward_efficiency) * speed;
  const double bytes_time =
      attention_bytes(a, backward) /
      (gpu.hbm_bandwidth.value *
       calibration->stream[static_cast<std::size_t>(Stream::elementwise)].fraction);
  return seconds(calibration->attention_launch_us * 1e-6 * (backward ? 2 : 1) +
                 std::max(flops / rate, bytes_time));
}

Seconds Prices::unfused_attention(double scores, bool backward) const {
  return elementwise(scores * calibration->attention_unfused_bytes * (backward ? 2 : 1));
}

Seconds Prices::host_copy(double bytes) const {
  return seconds(calibration->host_link_latency_us * 1e-6 +
                 bytes / (system->host_link_per_direction.value * calibration->host_link_fraction));
}

}  // namespace moecast
