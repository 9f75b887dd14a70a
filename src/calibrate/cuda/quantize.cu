// BF16 to FP8, rowwise and columnwise copies in one pass over 128 x 128 tiles.
#include <cuda_fp8.h>

#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/vec.cuh"

namespace moecast::cuda {
namespace {

constexpr int kThreads = 256, kTile = 128, kChunk = 32;
constexpr int kPitch = kTile / 2 + 1;  ///< words of a tile row; odd, so that columns hit all banks
constexpr float kMaxE4m3 = 448.f;

__device__ float2 word(const __nv_bfloat162 (*tile)[kPitch], int row, int pair) {
  return __bfloat1622float2(tile[row][pair]);
}

__device__ unsigned short to_fp8(float a, float b) {
  return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
}

/// The scale that brings `amax` to the type's maximum: a power of two for mx32.
template <Scaling S>
__device__ float scale_of(float amax) {
  if (amax == 0.f) return 1.f;
  if (S == Scaling::mx32) return exp2f(floorf(log2f(kMaxE4m3 / amax)));
  return kMaxE4m3 / amax;
}

/// Maximum over the `lanes` neighbouring lanes that share a 128-wide block.
template <Scaling S>
__device__ float shared_amax(float x) {
  if (S != Scaling::block128) return x;
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

using Tile = __nv_bfloat162[kTile][kPitch];

struct Job {
  const bf16* x;
  std::uint8_t *rowwise, *columnwise;
  float *row_scales, *col_scales;
  const float* tensor_scale;
  float* amax;
  int rows, cols;
};

/// The block's place in the matrix.
__device__ int first_row() { return static_cast<int>(blockIdx.y) * kTile; }
__device__ int first_col() { return static_cast<int>(blockIdx.x) * kTile; }

__device__ void load_tile(const Job& job, Tile& tile) {
  constexpr int kRowVecs = kTile / kVec, kLoads = kTile * kRowVecs / kThreads;
  Vec8 loaded[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    loaded[i] = *reinterpret_cast<const Vec8*>(
        job.x + static_cast<std::size_t>(first_row() + at / kRowVecs) * job.cols + first_col() +
        at % kRowVecs * kVec);
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    __nv_bfloat162* to = tile[at / kRowVecs] + at % kRowVecs * 4;
    to[0] = to_pair(loaded[i].x);
    to[1] = to_pair(loaded[i].y);
    to[2] = to_pair(loaded[i].z);
    to[3] = to_pair(loaded[i].w);
  }
  __syncthreads();
}

/// Whether this chunk of 32 writes a scale: one per block.
template <Scaling S>
__device__ bool has_scale(int chunk) {
  return S != Scaling::per_tensor && (S == Scaling::mx32 || chunk == 0);
}
template <Scaling S>
constexpr int kBlock = S == Scaling::block128 ? kTile : kChunk;

/// Four neighbouring lanes share a row, 32 columns each. Returns the largest magnitude that was
/// seen.
template <Scaling S>
__device__ float quantize_rows(const Job& job, const Tile& tile, float given) {
  float largest = 0;
#pragma unroll 1
  for (int unit = threadIdx.x; unit < kTile * 4; unit += kThreads) {
    const int row = unit / 4, chunk = unit % 4;
    float top = 0;
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      const float2 f = word(tile, row, chunk * kChunk / 2 + i);
      top = fmaxf(top, fmaxf(fabsf(f.x), fabsf(f.y)));
    }
    largest = fmaxf(largest, top);
    const float scale = S == Scaling::per_tensor ? given : scale_of<S>(shared_amax<S>(top));
    alignas(16) unsigned short out[kChunk / 2];
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      const float2 f = word(tile, row, chunk * kChunk / 2 + i);
      out[i] = to_fp8(f.x * scale, f.y * scale);
    }
    const int col = first_col() + chunk * kChunk, at = first_row() + row;
    auto* to =
        reinterpret_cast<uint4*>(job.rowwise + static_cast<std::size_t>(at) * job.cols + col);
    to[0] = reinterpret_cast<const uint4*>(out)[0];
    to[1] = reinterpret_cast<const uint4*>(out)[1];
    if (has_scale<S>(chunk))
      job.row_scales[static_cast<std::size_t>(col / kBlock<S>) * job.rows + at] = 1.f / scale;
  }
  return largest;
}

/// Two columns of 32 rows of this thread, as bytes of their own.
struct Columns {
  alignas(16) unsigned char a[kChunk], b[kChunk];
};

/// Through the tile's memory, so that 128 bytes of a transposed row leave together.
__device__ void store_transposed(const Job& job, Tile& tile, const Columns& columns, int pair,
                                 int chunk) {
  constexpr int kStagePitch = kTile + 16, kStores = kTile * kTile / 16 / kThreads;
  auto* stage = reinterpret_cast<std::uint8_t*>(tile);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    reinterpret_cast<uint4*>(stage + 2 * pair * kStagePitch + chunk * kChunk)[i] =
        reinterpret_cast<const uint4*>(columns.a)[i];
    reinterpret_cast<uint4*>(stage + (2 * pair + 1) * kStagePitch + chunk * kChunk)[i] =
        reinterpret_cast<const uint4*>(columns.b)[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kStores; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads, col = at / (kTile / 16),
              part = at % (kTile / 16);
    *reinterpret_cast<uint4*>(
        job.columnwise + static_cast<std::size_t>(first_col() + col) * job.rows + first_row() +
        part * 16) = *reinterpret_cast<const uint4*>(stage + col * kStagePitch + part * 16);
  }
}

/// Largest magnitudes of the two columns, over the whole tile where a block has 128 rows.
template <Scaling S>
__device__ float2 column_amax(const Tile& tile, float (&shared)[4][kTile], int pair, int chunk) {
  float2 top{0, 0};
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float2 f = word(tile, chunk * kChunk + i, pair);
    top = {fmaxf(top.x, fabsf(f.x)), fmaxf(top.y, fabsf(f.y))};
  }
  if (S != Scaling::block128) return top;
  shared[chunk][2 * pair] = top.x;
  shared[chunk][2 * pair + 1] = top.y;
  __syncthreads();
#pragma unroll
  for (int c = 0; c < 4; ++c)
    top = {fmaxf(top.x, shared[c][2 * pair]), fmaxf(top.y, shared[c][2 * pair + 1])};
  return top;
}

template <Scaling S>
__device__ void quantize_columns(const Job& job, Tile& tile, float (&shared)[4][kTile],
                                 float given) {
  const int pair = threadIdx.x % (kTile / 2), chunk = threadIdx.x / (kTile / 2);
  const int col = first_col() + 2 * pair, row = first_row() + chunk * kChunk;
  const float2 top = column_amax<S>(tile, shared, pair, chunk);
  const float2 scale = S == Scaling::per_tensor
                           ? make_float2(given, given)
                           : make_float2(scale_of<S>(top.x), scale_of<S>(top.y));
  Columns columns;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float2 f = word(tile, chunk * kChunk + i, pair);
    const unsigned short q = to_fp8(f.x * scale.x, f.y * scale.y);
    if (S == Scaling::mx32) {
      auto* to = job.columnwise + static_cast<std::size_t>(row + i) * job.cols + col;
      *reinterpret_cast<unsigned short*>(to) = q;
    } else {
      columns.a[i] = static_cast<unsigned char>(q & 0xff);
      columns.b[i] = static_cast<unsigned char>(q >> 8);
    }
  }
  if (S != Scaling::mx32) store_transposed(job, tile, columns, pair, chunk);
  if (!has_scale<S>(chunk)) return;
  float* to = job.col_scales + static_cast<std::size_t>(row / kBlock<S>) * job.cols + col;
  to[0] = 1.f / scale.x;
  to[1] = 1.f / scale.y;
}

template <Scaling S>
__global__ void __launch_bounds__(kThreads) quantize_kernel(Job job) {
  __shared__ __align__(16) Tile tile;
  __shared__ float col_amax[4][kTile];
  load_tile(job, tile);
  const float given = S == Scaling::per_tensor ? *job.tensor_scale : 1.f;
  float largest = quantize_rows<S>(job, tile, given);
  quantize_columns<S>(job, tile, col_amax, given);
  if constexpr (S == Scaling::per_tensor) {
#pragma unroll
    for (int o = 16; o > 0; o /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
    if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int*>(job.amax), __float_as_int(largest));
  }
}

__global__ void amax_kernel(const Vec8* x, float* out, std::size_t n) {
  float top = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n;
       i += 4 * step) {
    Vec8 v[4];
#pragma unroll
    for (int u = 0; u < 4; ++u)
      if (i + u * step < n) v[u] = x[i + u * step];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      if (i + u * step >= n) continue;
      float f[kVec];
      unpack(v[u], f);
#pragma unroll
      for (float e : f) top = fmaxf(top, fabsf(e));
    }
  }
#pragma unroll
  for (int o = 16; o > 0; o /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int*>(out), __float_as_int(top));
}

}  // namespace

void quantize(Scaling scaling, const bf16* x, void* rowwise, void* columnwise, float* row_scales,
              float* col_scales, const float* tensor_scale, float* amax, int rows, int cols,
              cudaStream_t s) {
  if (rows % kTile != 0 || cols % kTile != 0)
    throw Unsupported("quantisation needs multiples of 128");
  const dim3 grid(static_cast<unsigned>(cols / kTile), static_cast<unsigned>(rows / kTile));
  const Job job{x,
                static_cast<std::uint8_t*>(rowwise),
                static_cast<std::uint8_t*>(columnwise),
                row_scales,
                col_scales,
                tensor_scale,
                amax,
                rows,
                cols};
  const auto run = [&](auto kernel) { kernel<<<grid, kThreads, 0, s>>>(job); };
  switch (scaling) {
    case Scaling::per_tensor:
      run(quantize_kernel<Scaling::per_tensor>);
      break;
    case Scaling::block128:
      run(quantize_kernel<Scaling::block128>);
      break;
    case Scaling::mx32:
      run(quantize_kernel<Scaling::mx32>);
      break;
  }
  check(cudaGetLastError());
}

void amax(const bf16* x, float* out, std::size_t n, cudaStream_t s) {
  amax_kernel<<<1056, 256, 0, s>>>(reinterpret_cast<const Vec8*>(x), out, n / kVec);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
