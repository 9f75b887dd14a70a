// SwiGLU of [gate | up], with and without the routing probability of the row.
#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/vec.cuh"

namespace moecast::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

__global__ void forward(const bf16* x, const float* probs, bf16* y, int cols) {
  const std::size_t row = blockIdx.x;
  const auto* gate = reinterpret_cast<const Vec8*>(x + row * 2 * cols);
  const auto* up = reinterpret_cast<const Vec8*>(x + row * 2 * cols + cols);
  auto* out = reinterpret_cast<Vec8*>(y + row * cols);
  const float prob = probs == nullptr ? 1.f : probs[row];
  for (int at = threadIdx.x; at < cols / kVec; at += blockDim.x) {
    float g[kVec], u[kVec];
    unpack(gate[at], g);
    unpack(up[at], u);
#pragma unroll
    for (int j = 0; j < kVec; ++j) g[j] = g[j] * sigmoid(g[j]) * u[j] * prob;
    out[at] = pack(g);
  }
}

__global__ void backward(const bf16* dy, const bf16* x, const float* probs, bf16* dx, float* dprobs,
                         int cols) {
  __shared__ float shared[33];
  const std::size_t row = blockIdx.x;
  const auto* gate = reinterpret_cast<const Vec8*>(x + row * 2 * cols);
  const auto* up = reinterpret_cast<const Vec8*>(x + row * 2 * cols + cols);
  const auto* grad = reinterpret_cast<const Vec8*>(dy + row * cols);
  auto* d_gate = reinterpret_cast<Vec8*>(dx + row * 2 * cols);
  auto* d_up = reinterpret_cast<Vec8*>(dx + row * 2 * cols + cols);
  const float prob = probs == nullptr ? 1.f : probs[row];
  float d_prob = 0;
  for (int at = threadIdx.x; at < cols / kVec; at += blockDim.x) {
    float g[kVec], u[kVec], d[kVec];
    unpack(gate[at], g);
    unpack(up[at], u);
    unpack(grad[at], d);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      const float s = sigmoid(g[j]), silu = g[j] * s;
      d_prob += d[j] * silu * u[j];
      const float dp = d[j] * prob;
      g[j] = dp * u[j] * (s + silu * (1.f - s));
      u[j] = dp * silu;
    }
    d_gate[at] = pack(g);
    d_up[at] = pack(u);
  }
  if (probs == nullptr) return;
  d_prob = block_sum(d_prob, shared);
  if (threadIdx.x == 0) dprobs[row] = d_prob;
}

unsigned threads_for(int cols) {
  return static_cast<unsigned>(std::min(kThreads, (cols / kVec + 31) / 32 * 32));
}

}  // namespace

void swiglu(const bf16* x, const float* probs, bf16* y, int rows, int cols, cudaStream_t s) {
  forward<<<static_cast<unsigned>(rows), threads_for(cols), 0, s>>>(x, probs, y, cols);
  check(cudaGetLastError());
}

void swiglu_backward(const bf16* dy, const bf16* x, const float* probs, bf16* dx, float* dprobs,
                     int rows, int cols, cudaStream_t s) {
  backward<<<static_cast<unsigned>(rows), threads_for(cols), 0, s>>>(dy, x, probs, dx, dprobs,
                                                                     cols);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
