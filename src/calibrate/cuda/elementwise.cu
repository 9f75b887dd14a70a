// Streams of elements: copy, residual, rotary embedding, optimizer.
#include <cuda_fp8.h>

#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/vec.cuh"

namespace moecast::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  ///< independent 16-byte loads in flight per thread

/// Calls f(i) for the kUnroll elements of this thread that exist; the grid covers n.
template <typename F>
__global__ void tiled(std::size_t n, F f) {
  const std::size_t first = blockIdx.x * static_cast<std::size_t>(kThreads * kUnroll) + threadIdx.x;
  f(first, n);
}

template <typename F>
void launch(std::size_t n, cudaStream_t s, F f) {
  constexpr std::size_t kTile = kThreads * kUnroll;
  tiled<<<static_cast<unsigned>((n + kTile - 1) / kTile), kThreads, 0, s>>>(n, f);
  check(cudaGetLastError());
}

/// One vector a thread: the quickest of the unrollings tried, and as quick as cudaMemcpy.
__global__ void copy_kernel(const Vec8* x, Vec8* y, std::size_t n) {
  const std::size_t at = blockIdx.x * static_cast<std::size_t>(kThreads) + threadIdx.x;
  if (at < n) y[at] = x[at];
}

struct Add {
  const Vec8* x;
  const Vec8* y;
  Vec8* z;
  __device__ void operator()(std::size_t first, std::size_t n) const {
    Vec8 a[kUnroll], b[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const std::size_t at = first + i * kThreads;
      if (at >= n) continue;
      a[i] = x[at];
      b[i] = y[at];
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const std::size_t at = first + i * kThreads;
      if (at >= n) continue;
      const auto add = [](unsigned p, unsigned q) {
        return to_word(__hadd2(to_pair(p), to_pair(q)));
      };
      a[i] = {add(a[i].x, b[i].x), add(a[i].y, b[i].y), add(a[i].z, b[i].z), add(a[i].w, b[i].w)};
      z[at] = a[i];
    }
  }
};

struct Cast {
  const Vec8* x;
  uint2* y;
  const float* scale;
  __device__ void operator()(std::size_t first, std::size_t n) const {
    Vec8 a[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i)
      if (first + i * kThreads < n) a[i] = x[first + i * kThreads];
    const float s = *scale;
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * kThreads >= n) continue;
      float f[kVec];
      unpack(a[i], f);
      unsigned short q[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        q[j] = __nv_cvt_float2_to_fp8x2(make_float2(s * f[2 * j], s * f[2 * j + 1]), __NV_SATFINITE,
                                        __NV_E4M3);
      y[first + i * kThreads] = make_uint2(q[0] | static_cast<unsigned>(q[1]) << 16,
                                           q[2] | static_cast<unsigned>(q[3]) << 16);
    }
  }
};

struct Adam {
  const float4* grad;
  float4 *master, *m, *v;
  uint2* weight;
  __device__ static void step(float g, float& p, float& m, float& v) {
    constexpr float kBeta1 = 0.9f, kBeta2 = 0.95f, kRate = 1e-4f, kDecay = 0.1f, kEps = 1e-8f;
    m = kBeta1 * m + (1 - kBeta1) * g;
    v = kBeta2 * v + (1 - kBeta2) * g * g;
    p -= kRate * (m / (sqrtf(v) + kEps) + kDecay * p);
  }
  __device__ void operator()(std::size_t first, std::size_t n) const {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const std::size_t at = first + i * kThreads;
      if (at >= n) continue;
      const float4 g = grad[at];
      float4 p = master[at], a = m[at], b = v[at];
      step(g.x, p.x, a.x, b.x);
      step(g.y, p.y, a.y, b.y);
      step(g.z, p.z, a.z, b.z);
      step(g.w, p.w, a.w, b.w);
      master[at] = p;
      m[at] = a;
      v[at] = b;
      weight[at] = {to_word(__floats2bfloat162_rn(p.x, p.y)),
                    to_word(__floats2bfloat162_rn(p.z, p.w))};
    }
  }
};

constexpr int kHead = 128;

/// A thread turns 8 pairs of a head; the angles of a row come from L1 for all heads but the first.
struct Rope {
  const bf16* x;
  const float4* cos_sin;
  bf16* y;
  int per_row;  ///< pieces of a row
  __device__ void operator()(std::size_t first, std::size_t n) const {
    constexpr int kHalfVecs = kHead / 2 / kVec;
    Vec8 low[kUnroll], high[kUnroll];
    const auto low_of = [&](std::size_t at) {
      return at / kHalfVecs * kHead + at % kHalfVecs * kVec;
    };
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const std::size_t at = first + i * kThreads;
      if (at >= n) continue;
      low[i] = *reinterpret_cast<const Vec8*>(x + low_of(at));
      high[i] = *reinterpret_cast<const Vec8*>(x + low_of(at) + kHead / 2);
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const std::size_t at = first + i * kThreads;
      if (at >= n) continue;
      const float4* table = cos_sin + (at / per_row * (kHead / 2) + at % kHalfVecs * kVec) / 2;
      float a[kVec], b[kVec];
      unpack(low[i], a);
      unpack(high[i], b);
#pragma unroll
      for (int j = 0; j < kVec; j += 2) {
        const float4 t = table[j / 2];
        const float re = a[j] * t.x - b[j] * t.y, next = a[j + 1] * t.z - b[j + 1] * t.w;
        b[j] = b[j] * t.x + a[j] * t.y;
        b[j + 1] = b[j + 1] * t.z + a[j + 1] * t.w;
        a[j] = re;
        a[j + 1] = next;
      }
      *reinterpret_cast<Vec8*>(y + low_of(at)) = pack(a);
      *reinterpret_cast<Vec8*>(y + low_of(at) + kHead / 2) = pack(b);
    }
  }
};

__global__ void __launch_bounds__(1024, 1) copy_loop(const uint4* x, uint4* y, std::size_t n) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = x[i], b = x[i + step], c = x[i + 2 * step], d = x[i + 3 * step];
    y[i] = a;
    y[i + step] = b;
    y[i + 2 * step] = c;
    y[i + 3 * step] = d;
  }
  for (; i < n; i += step) y[i] = x[i];
}

}  // namespace

void copy(const bf16* x, bf16* y, std::size_t n, cudaStream_t s) {
  const std::size_t vecs = n / kVec;
  copy_kernel<<<static_cast<unsigned>((vecs + kThreads - 1) / kThreads), kThreads, 0, s>>>(
      reinterpret_cast<const Vec8*>(x), reinterpret_cast<Vec8*>(y), vecs);
  check(cudaGetLastError());
}

void residual(const bf16* x, const bf16* y, bf16* z, std::size_t n, cudaStream_t s) {
  launch(n / kVec, s,
         Add{reinterpret_cast<const Vec8*>(x), reinterpret_cast<const Vec8*>(y),
             reinterpret_cast<Vec8*>(z)});
}

void cast(const bf16* x, const float* scale, void* y, std::size_t n, cudaStream_t s) {
  launch(n / kVec, s, Cast{reinterpret_cast<const Vec8*>(x), static_cast<uint2*>(y), scale});
}

void adam(const float* grad, float* master, float* m, float* v, bf16* weight, std::size_t n,
          cudaStream_t s) {
  launch(n / 4, s,
         Adam{reinterpret_cast<const float4*>(grad), reinterpret_cast<float4*>(master),
              reinterpret_cast<float4*>(m), reinterpret_cast<float4*>(v),
              reinterpret_cast<uint2*>(weight)});
}

void rope(const bf16* x, const float2* cos_sin, bf16* y, int rows, int cols, cudaStream_t s) {
  const int per_row = cols / (2 * kVec);
  launch(static_cast<std::size_t>(rows) * per_row, s,
         Rope{x, reinterpret_cast<const float4*>(cos_sin), y, per_row});
}

void copy_on_sms(const void* x, void* y, std::size_t bytes, int sms, cudaStream_t s) {
  copy_loop<<<static_cast<unsigned>(sms), 1024, 0, s>>>(static_cast<const uint4*>(x),
                                                        static_cast<uint4*>(y), bytes / 16);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
