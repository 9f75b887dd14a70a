// Dense and grouped GEMM.
// Dense: t = t0 + hypot(tile term, byte term): loads and epilogues overlap with math in part. Tile
// term = min over tiles (a x b) of w' * 2ab (k + k_half) max(1, edge (1/a + 1/b)) / (peak * eff /
// SMs): an SM multiplies a tile, or waits for its operands. w = tiles / SMs, w' = w + wave x
// (ceil(w) - w); with w < 1 one wave, or the depth split over the idle SMs. Byte term = operand
// bytes / (HBM x fraction), a weight gradient at a fraction of its own.
// Grouped, one GEMM per expert over streams: the tiles that are quickest alone, as the library
// chooses them, but w' = w and no k_half: other experts fill the SMs that they leave idle. One
// launch for all: tiles of a fixed size over all experts in waves. Rows that come from a router
// fill their last tile by half.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

#include "estimate/prices.hpp"

namespace moecast {
namespace {

constexpr std::array<double, 7> kSides{16, 32, 64, 96, 128, 192, 256};
constexpr std::size_t side_index(double side) {
  std::size_t i = 0;
  while (kSides[i] != side) ++i;
  return i;
}
struct Tile {
  double a, b, edges;
  std::size_t side_a, side_b;  ///< of kSides
  constexpr Tile(double rows, double cols)
      : a(rows),
        b(cols),
        edges(1 / rows + 1 / cols),
        side_a(side_index(rows)),
        side_b(side_index(cols)) {}
};
// nvjet's tiles run from 64 x 8 to 256 x 128; these are close enough to fill a wave of any shape.
constexpr Tile kTiles[] = {{256, 256}, {128, 256}, {256, 128}, {128, 192}, {192, 128},
                           {128, 128}, {64, 256},  {256, 64},  {96, 128},  {128, 96},
                           {64, 128},  {128, 64},  {64, 96},   {96, 64},   {64, 64},
                           {64, 32},   {32, 64},   {64, 16},   {16, 64}};
constexpr std::span kAllTiles(kTiles);
constexpr auto kHopperTiles = kAllTiles.subspan(1);    // Blackwell pairs two SMs on a tile
constexpr auto kBlockTiles = kAllTiles.subspan(5, 1);  // 128 x 128, as its scales
static_assert(kBlockTiles[0].a == 128 && kBlockTiles[0].b == 128);
constexpr double kGroupedNorm = 3;  ///< how math and traffic of many experts overlap

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

/// What one pass of a GEMM meets on a GPU.
struct Machine {
  const GemmParameters& g;
  double flops_per_sm, sms, hbm;
  std::span<const Tile> tiles;
  /// Seconds of one element of depth.
  [[nodiscard]] double depth_seconds(const Tile& t) const {
    return 2 * t.a * t.b * std::max(1.0, g.tile_edge * t.edges) / flops_per_sm;
  }
};

/// A tile 10 % slower alone is chosen a fifth as often.
double choice_weight(double alone) {
  double w = 1e-6 / alone;
  for (int i = 0; i < 4; ++i) w *= w;
  return w;
}

/// std::ceil of what is positive and far below 2^63, without a call.
double ceil_of(double x) {
  const auto whole = static_cast<double>(static_cast<std::int64_t>(x));
  return whole < x ? whole + 1 : whole;
}

/// Rows of tiles; `even`: as many rows as asked for, not about as many.
double tile_rows(double rows, double height, bool even) {
  return even ? ceil_of(rows / height) : std::max(1.0, rows / height + 0.5);
}

/// Fewer tiles than SMs: libraries split the depth (split-K, stream-K) and another kernel adds the
/// fp32 partial results. `step` = seconds of one element of depth.
double split_seconds(const Problem3& p, const Machine& m, double waves, double step) {
  double best = step * (p.depth + m.g.k_half);
  for (const int split : {2, 4, 8}) {
    if (waves * split > 1) break;
    const double partials = 8.0 * split * p.rows * p.cols / m.hbm;  // written and read once
    best = std::min(best, step * (p.depth / split + m.g.k_half) + partials + 1e-6 * m.g.launch_us);
  }
  return best;
}

/// Tiles along rows and columns, for every side that a tile has: divisions are what tiles cost.
struct TileCounts {
  std::array<double, kSides.size()> rows, cols;
};
TileCounts tile_counts(const Problem3& p, bool even) {
  TileCounts n;
  for (std::size_t i = 0; i < kSides.size(); ++i) {
    n.rows[i] = tile_rows(p.rows, kSides[i], even);
    n.cols[i] = ceil_of(p.cols / kSides[i]);
  }
  return n;
}

/// What one tile makes of a GEMM.
struct TileTime {
  double alone, busy;  ///< the time alone, and how long its math keeps all SMs busy
};
TileTime tile_time(const Problem3& p, const Machine& m, const Tile& tile, const TileCounts& n) {
  const double waves = n.rows[tile.side_a] * n.cols[tile.side_b] / m.sms;
  const double step = m.depth_seconds(tile), whole = step * (p.depth + m.g.k_half);
  const double w = waves + m.g.wave_quantization * (ceil_of(waves) - waves);
  return {waves < 1 ? split_seconds(p, m, waves, step) : w * whole, waves * step * p.depth};
}

double quickest_alone(const Problem3& p, const Machine& m) {
  double best = INFINITY;
  const TileCounts n = tile_counts(p, true);
  for (const Tile& tile : m.tiles) best = std::min(best, tile_time(p, m, tile, n).alone);
  return best;
}

/// Of the tiles that are quickest alone. A library chooses among the nearly best by its own lights,
/// so these are averaged.
double busy_seconds(const Problem3& p, const Machine& m, bool even) {
  double busy = 0, weights = 0;
  const TileCounts n = tile_counts(p, even);
  for (const Tile& tile : m.tiles) {
    const TileTime t = tile_time(p, m, tile, n);
    const double weight = choice_weight(t.alone);
    busy += weight * t.busy;
    weights += weight;
  }
  return busy / weights;
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

/// Operands at the streaming rate; a weight gradient, which nothing reads again soon, at its own.
double stream_seconds(const Calibration& c, const Gpu& gpu, const Problem3& p, Pipe pipe, Pass pass,
                      double accumulate_bytes) {
  const GemmParameters& g = c.gemm[static_cast<std::size_t>(pipe)];
  const double operands = (p.rows + p.cols) * p.depth * element_bytes(pipe);
  const double out = p.rows * p.cols * (accumulate_bytes > 0 ? accumulate_bytes : 2);
  const double fraction = pass == Pass::wgrad ? c.accumulate_fraction : g.bandwidth_fraction;
  return (operands / g.bandwidth_fraction + out / fraction) / gpu.hbm_bandwidth.value;
}

Machine machine_of(const Prices& prices, Pipe pipe, double ratio) {
  const GemmParameters& g = prices.calibration->gemm[static_cast<std::size_t>(pipe)];
  const Gpu& gpu = prices.system->gpu;
  return {g, prices.clock * pipe_peak(gpu, pipe).value * g.efficiency * ratio / gpu.sms,
          double(gpu.sms), gpu.hbm_bandwidth.value,
          pipe == Pipe::fp8_blockwise    ? kBlockTiles
          : gpu.compute_capability >= 10 ? kAllTiles
                                         : kHopperTiles};
}

double grouped_norm(double math, double traffic) {
  return std::pow(std::pow(math, kGroupedNorm) + std::pow(traffic, kGroupedNorm), 1 / kGroupedNorm);
}

/// CUTLASS grouped GEMM as PyTorch dispatches it (aten/src/ATen/native/cuda/GroupMM.cu): a kernel
/// with low tiles for few rows, else two SMs on a tile of twice the height.
double single_launch_seconds(const Problem3& p, const Machine& m, const GroupedParameters& g,
                             double experts, Pass pass, bool even) {
  const bool few = pass != Pass::wgrad && p.rows <= 128;
  const Tile tile{few ? 128.0 : 256.0, 128};
  const double waves = experts * tile_rows(p.rows, tile.a, even) * ceil_of(p.cols / tile.b) / m.sms;
  const double rate = m.flops_per_sm * (few ? g.few_rows_ratio : 1);
  const double w = waves + g.wave_quantization * (ceil_of(waves) - waves);
  return w * 2 * tile.a * tile.b * (p.depth + m.g.k_half) / rate;
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

int quantize_kernels(Precision p) {
  switch (p) {
    case Precision::bf16:
      return 0;
    case Precision::fp8_delayed:
    case Precision::fp8_blockwise:
      return 1;
    case Precision::mxfp8:
      return 2;
    case Precision::fp8_tensorwise:
    case Precision::nvfp4:
      return 3;
  }
  return 1;
}

int row_alignment(Precision p, bool grouped_tensor) {
  if (p == Precision::bf16) return 0;
  if (grouped_tensor) return 256;
  if (p == Precision::nvfp4) return 128;
  return p == Precision::mxfp8 ? 32 : 16;
}

Seconds Prices::gemm(Pipe pipe, const GemmShape& shape, Pass pass, double accumulate_bytes) const {
  const GemmParameters& g = calibration->gemm[static_cast<std::size_t>(pipe)];
  const Problem3 p = in_pass(shape, pass);
  const Machine machine = machine_of(*this, pipe, pass_ratio(g, pass));
  const double streamed =
      stream_seconds(*calibration, system->gpu, p, pipe, pass, accumulate_bytes);
  return seconds(g.launch_us * 1e-6 + std::hypot(quickest_alone(p, machine), streamed));
}

Seconds Prices::fp32_gemm(const GemmShape& s) const {
  const double flops = 2 * s.m * s.n * s.k / (calibration->fp32_gemm_tflops * 1e12);
  return seconds(calibration->kernel_floor_us * 1e-6) + seconds(flops);
}

Seconds Prices::grouped_gemm(Pipe pipe, double experts, const GemmShape& one, Pass pass,
                             double accumulate_bytes, bool single_launch, bool even) const {
  const GemmParameters& dense = calibration->gemm[static_cast<std::size_t>(pipe)];
  const GroupedParameters& g = calibration->grouped[static_cast<std::size_t>(pipe)];
  const Problem3 p = in_pass(one, pass);
  const double ratio = pass_ratio(dense, pass) *
                       (pass == Pass::wgrad ? g.wgrad_ratio : g.efficiency_ratio) *
                       (single_launch ? g.fused_efficiency_ratio : 1);
  const Machine machine = machine_of(*this, pipe, ratio);
  const double streamed =
      experts * stream_seconds(*calibration, system->gpu, p, pipe, pass, accumulate_bytes);
  // the rows of an expert are the depth of its weight gradient
  const bool even_tiles = even || pass == Pass::wgrad;
  const double start = 1e-6 * experts * g.launch_us_per_group;
  if (single_launch) {
    const double tiles = single_launch_seconds(p, machine, g, experts, pass, even_tiles);
    return seconds(1e-6 * g.single_launch_us + grouped_norm(tiles, streamed));
  }
  const double tiles = experts * busy_seconds(p, machine, even_tiles);
  return seconds(2e-6 * dense.launch_us + grouped_norm(tiles + start, streamed));
}

}  // namespace moecast
