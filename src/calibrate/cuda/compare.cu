// Relative error of a result against FP32/FP64 arithmetic on the same inputs.
#include <cuda_fp8.h>

#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"

namespace moecast::cuda {
namespace {

constexpr int kThreads = 128;

/// Four bits: sign, two of exponent, one of mantissa.
__device__ float load_e2m1(int bits) {
  const float magnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (bits & 8) != 0 ? -magnitude[bits & 7] : magnitude[bits & 7];
}

__device__ float load(const void* data, int type, std::int64_t at) {
  switch (type) {
    case 0:
      return __bfloat162float(static_cast<const bf16*>(data)[at]);
    case 1:
      return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(data)[at]);
    case 2:
      return static_cast<float>(static_cast<const __nv_fp8_e5m2*>(data)[at]);
    case 4:
      return load_e2m1(static_cast<const std::uint8_t*>(data)[at / 2] >> (at % 2 * 4));
    default:
      return static_cast<const float*>(data)[at];
  }
}

__device__ float load(const Strided& t, std::int64_t row, std::int64_t col) {
  const float value = load(t.data, t.type, row * t.row + col * t.col);
  return t.scales == nullptr
             ? value
             : value *
                   t.scales[row / t.scale_rows * t.scale_row + col / t.scale_cols * t.scale_col];
}

__device__ double block_total(double x) {
  __shared__ double parts[kThreads / 32];
  for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
  for (double p : parts) total += p;
  __syncthreads();
  return total;
}

__device__ void accumulate(double got, double want, double* result) {
  atomicAdd(result, (got - want) * (got - want));
  atomicAdd(result + 1, want * want);
}

/// A block a sampled element; the places are spread by two odd multipliers.
__global__ void gemm_kernel(Strided a, Strided b, Strided out, Strided base, int m, int n, int k,
                            double* result) {
  const auto i = static_cast<std::int64_t>(blockIdx.x * 2654435761ull % static_cast<unsigned>(m));
  const auto j =
      static_cast<std::int64_t>(blockIdx.x * 40503ull * 65537ull % static_cast<unsigned>(n));
  double sum = 0;
  for (int at = threadIdx.x; at < k; at += kThreads)
    sum += static_cast<double>(load(a, i, at)) * static_cast<double>(load(b, j, at));
  sum = block_total(sum);
  if (threadIdx.x != 0) return;
  if (base.data != nullptr) sum += load(base, i, j);
  accumulate(load(out, i, j), sum, result);
}

__global__ void array_kernel(Strided out, Strided reference, std::size_t n, double* result) {
  double error = 0, norm = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n;
       i += step) {
    const double got = load(out.data, out.type, static_cast<std::int64_t>(i));
    const double want = load(reference.data, reference.type, static_cast<std::int64_t>(i));
    error += (got - want) * (got - want);
    norm += want * want;
  }
  error = block_total(error);
  norm = block_total(norm);
  if (threadIdx.x != 0) return;
  atomicAdd(result, error);
  atomicAdd(result + 1, norm);
}

}  // namespace

void compare_gemm(const Strided& a, const Strided& b, const Strided& out, const Strided& base,
                  int m, int n, int k, int samples, double* result, cudaStream_t s) {
  check(cudaMemsetAsync(result, 0, 2 * sizeof(double), s));
  gemm_kernel<<<static_cast<unsigned>(samples), kThreads, 0, s>>>(a, b, out, base, m, n, k, result);
  check(cudaGetLastError());
}

void compare(const Strided& out, const Strided& reference, std::size_t n, double* result,
             cudaStream_t s) {
  check(cudaMemsetAsync(result, 0, 2 * sizeof(double), s));
  array_kernel<<<256, kThreads, 0, s>>>(out, reference, n, result);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
