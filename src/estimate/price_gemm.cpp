// Dense and grouped GEMM.
// Dense: t = t0 + max(tile term, byte term). Tile term = min over tiles (a x b) of w' * 2ab(k +
// k_half) / (peak * eff / SMs), w = tiles / SMs, w' = 1 if w < 1 else w + wave * (ceil(w) - w).
// Byte term = operand bytes / (HBM * fraction). Fitted to NVIDIA aiconfigurator's GEMM tables at
// sustained clocks (hwdb/profiles). Grouped: per expert max(2mnk (1 + m_half / m) / rate, bytes /
// bandwidth) + launch per group; fitted to SimuMax B200 samples.
#include <cmath>
#include <utility>

#include "estimate/prices.hpp"

namespace moecast {
namespace {

struct Tile {
  double a, b;
};
constexpr Tile kHopperTiles[] = {{128, 256}, {256, 128}, {128, 128}, {64, 256},
                                 {256, 64},  {128, 64},  {64, 128}};
constexpr Tile kBlackwellTiles[] = {{256, 256}, {128, 256}, {256, 128}, {128, 128},
                                    {64, 256},  {256, 64},  {128, 64},  {64, 128}};

/// Rows, columns and depth that the hardware sees in a pass.
struct Problem3 {
  double rows, cols, depth;
};
Problem3 in_pass(const GemmShape& s, Pass pass) {
  switch (pass) {
    case Pass::forward:
      return {s.m, s.n, s.k};
    case Pass::dgrad:
      return {s.m, s.k, s.n};
    case Pass::wgrad:
      return {s.n, s.k, s.m};
  }
  return {};
}

double tile_seconds(const Problem3& p, double flops_per_sm, double k_half, double wave, int sms,
                    bool blackwell) {
  double best = INFINITY;
  const Tile* tiles = blackwell ? kBlackwellTiles : kHopperTiles;
  const int count = blackwell ? 8 : 7;
  for (int i = 0; i < count; ++i) {
    const double tiles_total = std::ceil(p.rows / tiles[i].a) * std::ceil(p.cols / tiles[i].b);
    const double waves = tiles_total / sms;
    const double w = waves < 1 ? 1 : waves + wave * (std::ceil(waves) - waves);
    best = std::min(best, w * 2 * tiles[i].a * tiles[i].b * (p.depth + k_half) / flops_per_sm);
  }
  return best;
}

double element_bytes(Pipe pipe) {
  switch (pipe) {
    case Pipe::bf16:
      return 2;
    case Pipe::nvfp4:
      return 0.5625;
    default:
      return 1;
  }
}

FlopsPerSecond pipe_peak(const Gpu& gpu, Pipe pipe) {
  switch (pipe) {
    case Pipe::bf16:
      return gpu.bf16;
    case Pipe::nvfp4:
      return gpu.fp4.value > 0 ? gpu.fp4 : gpu.fp8;
    default:
      return gpu.fp8;
  }
}

}  // namespace

Pipe pipe_of(Precision p) {
  switch (p) {
    case Precision::bf16:
      return Pipe::bf16;
    case Precision::fp8_delayed:
    case Precision::fp8_tensorwise:
      return Pipe::fp8;
    case Precision::fp8_blockwise:
      return Pipe::fp8_blockwise;
    case Precision::mxfp8:
      return Pipe::mxfp8;
    case Precision::nvfp4:
      return Pipe::nvfp4;
  }
  return Pipe::bf16;
}

double operand_bytes(Precision p) {
  switch (p) {
    case Precision::bf16:
      return 2;
    case Precision::fp8_delayed:
    case Precision::fp8_tensorwise:
      return 1;
    case Precision::fp8_blockwise:
      return 1 + 4.0 / 128;
    case Precision::mxfp8:
      return 1 + 1.0 / 32;
    case Precision::nvfp4:
      return 0.5 + 1.0 / 16;
  }
  return 2;
}

int row_alignment(Precision p, bool grouped_tensor) {
  if (p == Precision::bf16) return 0;
  if (grouped_tensor) return 256;
  if (p == Precision::nvfp4) return 128;
  return p == Precision::mxfp8 ? 32 : 16;
}

Seconds Prices::gemm(Pipe pipe, const GemmShape& shape, Pass pass, double accumulate_bytes) const {
  const GemmParameters& g = calibration->gemm[static_cast<std::size_t>(pipe)];
  const Gpu& gpu = system->gpu;
  const Problem3 p = in_pass(shape, pass);
  const double per_sm = pipe_peak(gpu, pipe).value * g.efficiency / gpu.sms;
  const double tiles =
      tile_seconds(p, per_sm, g.k_half, g.wave_quantization, gpu.sms, gpu.compute_capability >= 10);
  const double out = pass == Pass::wgrad && accumulate_bytes > 0 ? accumulate_bytes : 2;
  const double moved =
      (p.rows * p.depth + p.cols * p.depth) * element_bytes(pipe) + p.rows * p.cols * out;
  const double streamed = moved / (gpu.hbm_bandwidth.value * g.bandwidth_fraction);
  return seconds(g.launch_us * 1e-6 + std::max(tiles, streamed));
}

Seconds Prices::fp32_gemm(const GemmShape& s) const {
  const double flops = 2 * s.m * s.n * s.k / (calibration->fp32_gemm_tflops * 1e12);
  return seconds(calibration->kernel_floor_us * 1e-6) + seconds(flops);
}

Seconds Prices::grouped_gemm(Pipe pipe, double experts, const GemmShape& one, Pass pass,
                             double accumulate_bytes, bool fused) const {
  const GemmParameters& dense = calibration->gemm[static_cast<std::size_t>(pipe)];
  const GroupedParameters& g = calibration->grouped[static_cast<std::size_t>(pipe)];
  const Gpu& gpu = system->gpu;
  const Problem3 p = in_pass(one, pass);
  const double ratio = (pass == Pass::wgrad ? g.wgrad_ratio : g.efficiency_ratio) *
                       (fused ? g.fused_efficiency_ratio : 1);
  const double rate = pipe_peak(gpu, pipe).value * dense.efficiency * ratio;
  const double k_loss = pass == Pass::wgrad ? 1 : 1 + dense.k_half / p.depth;
  const double math =
      2 * one.m * one.n * one.k * (1 + g.m_half / std::max(one.m, 1.0)) * k_loss / rate;
  const double out = pass == Pass::wgrad && accumulate_bytes > 0 ? accumulate_bytes : 2;
  const double moved =
      (p.rows * p.depth + p.cols * p.depth) * element_bytes(pipe) + p.rows * p.cols * out;
  const double streamed = moved / (gpu.hbm_bandwidth.value * dense.bandwidth_fraction);
  const double launches =
      fused ? dense.launch_us : dense.launch_us + experts * g.launch_us_per_group;
  return seconds(launches * 1e-6 + experts * std::max(math, streamed));
}

}  // namespace moecast
