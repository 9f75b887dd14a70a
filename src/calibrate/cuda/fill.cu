#include <cuda_fp8.h>

#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"

namespace moecast::cuda {
namespace {

constexpr int kThreads = 256;

__device__ unsigned hash(unsigned long long x, unsigned seed) {
  x += 0x9E3779B97F4A7C15ull * (seed + 1ull);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<unsigned>(x ^ (x >> 31));
}

/// Box-Muller on two hashes.
__device__ float normal(unsigned long long i, unsigned seed) {
  const float u = (static_cast<float>(hash(2 * i, seed)) + 1.f) * 0x1p-32f;
  const float v = static_cast<float>(hash(2 * i + 1, seed)) * 0x1p-32f;
  return sqrtf(-2.f * __logf(fmaxf(u, 1e-12f))) * __cosf(6.2831853f * v);
}

template <typename T, typename Make>
__global__ void fill_kernel(T* out, std::size_t n, Make make) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n;
       i += step)
    out[i] = make(i);
}

template <typename T, typename Make>
void fill(T* out, std::size_t n, cudaStream_t s, Make make) {
  const auto blocks =
      static_cast<unsigned>(std::min<std::size_t>((n + kThreads - 1) / kThreads, 16384));
  if (n > 0) fill_kernel<<<blocks, kThreads, 0, s>>>(out, n, make);
  check(cudaGetLastError());
}

__global__ void hold_kernel(const volatile int* flag) {
  while (*flag == 0) __nanosleep(200);
}

__global__ void nothing() {}

}  // namespace

void fill_normal(bf16* out, std::size_t n, unsigned seed, cudaStream_t s, float sigma) {
  fill(out, n, s,
       [=] __device__(std::size_t i) { return __float2bfloat16(sigma * normal(i, seed)); });
}

void fill_normal(float* out, std::size_t n, unsigned seed, cudaStream_t s, float sigma) {
  fill(out, n, s, [=] __device__(std::size_t i) { return sigma * normal(i, seed); });
}

void fill_normal_fp8(void* out, Fp8 type, std::size_t n, unsigned seed, cudaStream_t s) {
  if (type == Fp8::e4m3)
    fill(static_cast<__nv_fp8_e4m3*>(out), n, s,
         [=] __device__(std::size_t i) { return __nv_fp8_e4m3(normal(i, seed)); });
  else
    fill(static_cast<__nv_fp8_e5m2*>(out), n, s,
         [=] __device__(std::size_t i) { return __nv_fp8_e5m2(normal(i, seed)); });
}

void fill_scales(float* out, std::size_t n, unsigned seed, cudaStream_t s) {
  fill(out, n, s, [=] __device__(std::size_t i) {
    return ldexpf(1.f, static_cast<int>(hash(i, seed) % 4) - 2);
  });
}

void fill_int(int* out, std::size_t n, int below, unsigned seed, cudaStream_t s) {
  fill(out, n, s, [=] __device__(std::size_t i) {
    return static_cast<int>(hash(i, seed) % static_cast<unsigned>(below));
  });
}

void hold(const volatile int* flag, cudaStream_t s) {
  hold_kernel<<<1, 1, 0, s>>>(flag);
  check(cudaGetLastError());
}

void empty_kernel(cudaStream_t s) {
  nothing<<<1, 32, 0, s>>>();
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
