// RMSNorm, one row a block; the weight gradient is summed by persistent blocks and reduced at the
// end.
#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/vec.cuh"

namespace moecast::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxVecs = 8;  ///< 16-byte vectors a thread keeps: rows of up to 16384
constexpr float kEpsilon = 1e-6f;
constexpr int kBackwardBlocks = 528;  ///< at most; half of them for rows wider than 4096

template <int Vecs>
__global__ void forward(const bf16* x, const bf16* weight, bf16* y, float* rstd, int cols) {
  __shared__ float shared[33];
  const auto* in = reinterpret_cast<const Vec8*>(x + static_cast<std::size_t>(blockIdx.x) * cols);
  auto* out = reinterpret_cast<Vec8*>(y + static_cast<std::size_t>(blockIdx.x) * cols);
  const auto* w = reinterpret_cast<const Vec8*>(weight);
  const int vecs = cols / kVec;
  Vec8 kept[Vecs];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < Vecs; ++i) {
    const int at = threadIdx.x + i * kThreads;
    if (at >= vecs) continue;
    kept[i] = in[at];
    float f[kVec];
    unpack(kept[i], f);
#pragma unroll
    for (float e : f) squares += e * e;
  }
  const float scale = rsqrtf(block_sum(squares, shared) / static_cast<float>(cols) + kEpsilon);
  if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
#pragma unroll
  for (int i = 0; i < Vecs; ++i) {
    const int at = threadIdx.x + i * kThreads;
    if (at >= vecs) continue;
    float f[kVec], g[kVec];
    unpack(kept[i], f);
    unpack(w[at], g);
#pragma unroll
    for (int j = 0; j < kVec; ++j) f[j] *= scale * g[j];
    out[at] = pack(f);
  }
}

template <int Vecs>
__global__ void backward(const bf16* dy, const bf16* x, const bf16* weight, const float* rstd,
                         bf16* dx, float* partial, int rows, int cols) {
  __shared__ float shared[33];
  const int vecs = cols / kVec;
  const auto* w = reinterpret_cast<const Vec8*>(weight);
  float sums[Vecs][kVec] = {};
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const auto* g_in = reinterpret_cast<const Vec8*>(dy + static_cast<std::size_t>(row) * cols);
    const auto* x_in = reinterpret_cast<const Vec8*>(x + static_cast<std::size_t>(row) * cols);
    auto* out = reinterpret_cast<Vec8*>(dx + static_cast<std::size_t>(row) * cols);
    const float scale = rstd[row];
    Vec8 kept_g[Vecs], kept_x[Vecs];
#pragma unroll
    for (int i = 0; i < Vecs; ++i) {
      const int at = threadIdx.x + i * kThreads;
      if (at >= vecs) continue;
      kept_g[i] = g_in[at];
      kept_x[i] = x_in[at];
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < Vecs; ++i) {
      const int at = threadIdx.x + i * kThreads;
      if (at >= vecs) continue;
      float g[kVec], v[kVec], wf[kVec];
      unpack(kept_g[i], g);
      unpack(kept_x[i], v);
      unpack(w[at], wf);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        dot += g[j] * wf[j] * v[j];
        sums[i][j] += g[j] * v[j] * scale;
      }
    }
    const float mean = block_sum(dot, shared) * scale * scale / static_cast<float>(cols);
#pragma unroll
    for (int i = 0; i < Vecs; ++i) {
      const int at = threadIdx.x + i * kThreads;
      if (at >= vecs) continue;
      float g[kVec], v[kVec], wf[kVec];
      unpack(kept_g[i], g);
      unpack(kept_x[i], v);
      unpack(w[at], wf);
#pragma unroll
      for (int j = 0; j < kVec; ++j) g[j] = scale * (g[j] * wf[j] - v[j] * mean);
      out[at] = pack(g);
    }
  }
#pragma unroll
  for (int i = 0; i < Vecs; ++i) {
    const int at = threadIdx.x + i * kThreads;
    if (at >= vecs) continue;
    float* to = partial + static_cast<std::size_t>(blockIdx.x) * cols + at * kVec;
#pragma unroll
    for (int j = 0; j < kVec; ++j) to[j] = sums[i][j];
  }
}

constexpr int kReduceCols = 32, kReduceParts = 16;

/// A warp reads 32 neighbouring columns; 16 of them share the parts.
__global__ void reduce_partial(const float* partial, float* out, int parts, int cols) {
  __shared__ float sums[kReduceParts][kReduceCols];
  const int col = blockIdx.x * kReduceCols + threadIdx.x;
  float sum = 0;
  for (int p = threadIdx.y; p < parts && col < cols; p += kReduceParts)
    sum += partial[static_cast<std::size_t>(p) * cols + col];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  for (int p = 1; p < kReduceParts; ++p) sum += sums[p][threadIdx.x];
  out[col] = sum;
}

/// Calls f with the number of vectors a thread keeps as a compile-time constant.
template <typename F>
void with_vecs(int cols, F f) {
  const int vecs = (cols / kVec + kThreads - 1) / kThreads;
  if (vecs <= 1) return f(std::integral_constant<int, 1>{});
  if (vecs <= 2) return f(std::integral_constant<int, 2>{});
  if (vecs <= 4) return f(std::integral_constant<int, 4>{});
  if (vecs > kMaxVecs) throw Unsupported("rows wider than 16384");
  f(std::integral_constant<int, kMaxVecs>{});
}

}  // namespace

int rms_norm_blocks() { return kBackwardBlocks; }

void rms_norm(const bf16* x, const bf16* weight, bf16* y, float* rstd, int rows, int cols,
              cudaStream_t s) {
  with_vecs(cols, [&](auto vecs) {
    forward<decltype(vecs)::value>
        <<<static_cast<unsigned>(rows), kThreads, 0, s>>>(x, weight, y, rstd, cols);
  });
  check(cudaGetLastError());
}

void rms_norm_backward(const bf16* dy, const bf16* x, const bf16* weight, const float* rstd,
                       bf16* dx, float* partial, float* dweight, int rows, int cols,
                       cudaStream_t s) {
  const int blocks = std::min(rows, cols <= 4096 ? kBackwardBlocks : kBackwardBlocks / 2);
  with_vecs(cols, [&](auto vecs) {
    backward<decltype(vecs)::value><<<static_cast<unsigned>(blocks), kThreads, 0, s>>>(
        dy, x, weight, rstd, dx, partial, rows, cols);
  });
  reduce_partial<<<static_cast<unsigned>((cols + kReduceCols - 1) / kReduceCols),
                   dim3(kReduceCols, kReduceParts), 0, s>>>(partial, dweight, blocks, cols);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
