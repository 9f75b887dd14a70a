// Dense and grouped GEMM.
// Dense: t = t0 + hypot(tile term, byte term): loads and epilogues overlap with math in part. Tile
// term = min over tiles (a x b) of w' * 2ab (k + k_half) (1 + edge (1/a + 1/b)) / (peak * eff /
// SMs), w = tiles / SMs, w' = w + wave * (ceil(w) - w); with w < 1 one wave, its depth split over
// the idle SMs. Byte term = operand bytes / (HBM * fraction), an accumulated gradient at a fraction
// of its own. Priors are fitted to NVIDIA aiconfigurator's GEMM tables at sustained clocks
// (hwdb/profiles). Grouped: per expert the 2-norm of 2mnk (1 + m_half / m) / rate, bytes /
// bandwidth and the start of a GEMM on its stream; priors fitted to SimuMax B200 samples.
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

/// Fewer tiles than SMs: libraries split the depth (split-K, stream-K) and add fp32 partial
/// results. Seconds of one wave; `tile` = seconds of one element of depth.
double split_seconds(const Problem3& p, const GemmParameters& g, double waves, double tile,
                     double hbm) {
  double best = tile * (p.depth + g.k_half);
  for (const int split : {2, 3, 4, 6, 8}) {
    if (waves * split > 1) break;
    const double partials = 8.0 * split * p.rows * p.cols / hbm;  // written and read once
    best = std::min(best, tile * (p.depth / split + 2 * g.k_half) + partials);
  }
  return best;
}

double tile_seconds(const Problem3& p, const GemmParameters& g, double flops_per_sm,
                    const Gpu& gpu) {
  double best = INFINITY;
  const bool blackwell = gpu.compute_capability >= 10;
  const Tile* tiles = blackwell ? kBlackwellTiles : kHopperTiles;
  const int count = blackwell ? 8 : 7;
  for (int i = 0; i < count; ++i) {
    const auto [a, b] = tiles[i];
    const double waves = std::ceil(p.rows / a) * std::ceil(p.cols / b) / gpu.sms;
    const double edge = 1 + g.tile_edge * (1 / a + 1 / b);
    const double tile = 2 * a * b * edge / flops_per_sm;
    if (waves < 1) {
      best = std::min(best, split_seconds(p, g, waves, tile, gpu.hbm_bandwidth.value));
    } else {
      const double w = waves + g.wave_quantization * (std::ceil(waves) - waves);
      best = std::min(best, w * tile * (p.depth + g.k_half));
    }
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

double pass_ratio(const GemmParameters& g, Pass pass) {
  return pass == Pass::forward ? 1 : pass == Pass::dgrad ? g.dgrad_ratio : g.wgrad_ratio;
}

/// Operands at the streaming rate; a gradient that is added to in memory at its own.
double stream_seconds(const Calibration& c, const Gpu& gpu, const Problem3& p, Pipe pipe, Pass pass,
                      double accumulate_bytes) {
  const GemmParameters& g = c.gemm[static_cast<std::size_t>(pipe)];
  const bool accumulates = pass == Pass::wgrad && accumulate_bytes > 0;
  const double operands = (p.rows + p.cols) * p.depth * element_bytes(pipe);
  const double out = p.rows * p.cols * (accumulates ? accumulate_bytes : 2);
  const double fraction = accumulates ? c.accumulate_fraction : g.bandwidth_fraction;
  return (operands / g.bandwidth_fraction + out / fraction) / gpu.hbm_bandwidth.value;
}

}  // namespace

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

double quantize_bytes(Precision p, bool hopper) {
  const double write = operand_bytes(p);
  switch (p) {
    case Precision::bf16:
      return 0;
    // Hopper's FP8 GEMM takes K-major operands only, so a transposed copy is written for wgrad
    case Precision::fp8_delayed:
      return 2 + write * (hopper ? 2 : 1);
    case Precision::fp8_tensorwise:
      return 2 + 2 + write * (hopper ? 2 : 1);  // amax pass, then cast
    case Precision::fp8_blockwise:
    case Precision::mxfp8:
      return 2 + 2 * write;
    case Precision::nvfp4:
      return 2 + 2 + 2 * write;
  }
  return 0;
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
  const double per_sm = pipe_peak(gpu, pipe).value * g.efficiency * pass_ratio(g, pass) / gpu.sms;
  const double tiles = tile_seconds(p, g, per_sm, gpu);
  const double streamed = stream_seconds(*calibration, gpu, p, pipe, pass, accumulate_bytes);
  return seconds(g.launch_us * 1e-6 + std::hypot(tiles, streamed));
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
  const double streamed = stream_seconds(*calibration, gpu, p, pipe, pass, accumulate_bytes);
  // streams hide starts behind the other experts' work, in part as well
  const double start = fused ? 0 : g.launch_us_per_group * 1e-6;
  return seconds(dense.launch_us * 1e-6 + experts * std::hypot(math, streamed, start));
}

}  // namespace moecast
