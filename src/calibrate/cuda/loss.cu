// Router (softmax, top-k) and cross entropy with its gradient.
#include <cfloat>
#include <cstdint>

#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/vec.cuh"

namespace moecast::cuda {
namespace {

constexpr int kMaxPerLane = 16;  ///< experts a lane keeps: up to 512 experts

__device__ float warp_max(float x) {
#pragma unroll
  for (int o = 16; o > 0; o /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
  return x;
}

/// One warp a token. Lanes hold experts lane, lane + 32, ...; the winner of each round is masked
/// out.
template <int PerLane>
__global__ void router_kernel(const float* logits, float* probs, std::uint8_t* map, int rows,
                              int experts, int topk) {
  const int row = static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32),
            lane = threadIdx.x % 32;
  if (row >= rows) return;
  float value[PerLane];
  float top = -FLT_MAX, sum = 0;
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int e = lane + 32 * i;
    value[i] = e < experts ? logits[static_cast<std::size_t>(row) * experts + e] : -FLT_MAX;
    top = fmaxf(top, value[i]);
  }
  top = warp_max(top);
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    value[i] = value[i] == -FLT_MAX ? -1.f : __expf(value[i] - top);
    sum += fmaxf(value[i], 0.f);
  }
  sum = warp_sum(sum);
  unsigned chosen = 0;
  for (int round = 0; round < topk; ++round) {
    float best = -2.f;
    int slot = 0;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      if ((chosen >> i & 1u) == 0 && value[i] > best) {
        best = value[i];
        slot = i;
      }
    }
    const float winner = warp_max(best);
    const unsigned ties = __ballot_sync(0xffffffffu, best == winner);
    if (lane == __ffs(static_cast<int>(ties)) - 1) chosen |= 1u << slot;
  }
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int e = lane + 32 * i;
    if (e >= experts) continue;
    const bool is_chosen = (chosen >> i & 1u) != 0;
    probs[static_cast<std::size_t>(row) * experts + e] = is_chosen ? value[i] / sum : 0.f;
    map[static_cast<std::size_t>(row) * experts + e] = is_chosen ? 1 : 0;
  }
}

/// (maximum, sum of exp(x - maximum)) of two parts.
__device__ float2 merge(float2 a, float2 b) {
  const float top = fmaxf(a.x, b.x);
  return {top, a.y * __expf(a.x - top) + b.y * __expf(b.x - top)};
}

__global__ void __launch_bounds__(1024)
    cross_entropy_kernel(const bf16* logits, const int* target, float* loss, bf16* dlogits,
                         int vocab) {
  __shared__ float2 parts[32];
  const std::size_t row = blockIdx.x;
  const auto* in = reinterpret_cast<const Vec8*>(logits + row * vocab);
  auto* out = reinterpret_cast<Vec8*>(dlogits + row * vocab);
  const int vecs = vocab / kVec;
  float2 stat{-FLT_MAX, 0.f};
  for (int at = threadIdx.x; at < vecs; at += blockDim.x) {
    float f[kVec];
    unpack(in[at], f);
    float top = stat.x;
#pragma unroll
    for (float e : f) top = fmaxf(top, e);
    float sum = stat.y * __expf(stat.x - top);
#pragma unroll
    for (float e : f) sum += __expf(e - top);
    stat = {top, sum};
  }
#pragma unroll
  for (int o = 16; o > 0; o /= 2)
    stat = merge(
        stat, {__shfl_xor_sync(0xffffffffu, stat.x, o), __shfl_xor_sync(0xffffffffu, stat.y, o)});
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = stat;
  __syncthreads();
  stat = parts[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) stat = merge(stat, parts[w]);
  const int wanted = target[row];
  if (threadIdx.x == 0)
    loss[row] = stat.x + __logf(stat.y) - __bfloat162float(logits[row * vocab + wanted]);
  const float inverse = 1.f / stat.y;
  for (int at = threadIdx.x; at < vecs; at += blockDim.x) {
    float f[kVec];
    unpack(in[at], f);
#pragma unroll
    for (int j = 0; j < kVec; ++j)
      f[j] = __expf(f[j] - stat.x) * inverse - (at * kVec + j == wanted ? 1.f : 0.f);
    out[at] = pack(f);
  }
}

}  // namespace

void router(const float* logits, float* probs, std::uint8_t* map, int rows, int experts, int topk,
            cudaStream_t s) {
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>((rows + kThreads / 32 - 1) / (kThreads / 32));
  const int per_lane = (experts + 31) / 32;
  if (per_lane > kMaxPerLane) throw Unsupported("more than 512 experts");
  if (per_lane <= 1)
    router_kernel<1><<<blocks, kThreads, 0, s>>>(logits, probs, map, rows, experts, topk);
  else if (per_lane <= 2)
    router_kernel<2><<<blocks, kThreads, 0, s>>>(logits, probs, map, rows, experts, topk);
  else if (per_lane <= 4)
    router_kernel<4><<<blocks, kThreads, 0, s>>>(logits, probs, map, rows, experts, topk);
  else if (per_lane <= 8)
    router_kernel<8><<<blocks, kThreads, 0, s>>>(logits, probs, map, rows, experts, topk);
  else
    router_kernel<kMaxPerLane><<<blocks, kThreads, 0, s>>>(logits, probs, map, rows, experts, topk);
  check(cudaGetLastError());
}

void cross_entropy(const bf16* logits, const int* target, float* loss, bf16* dlogits, int rows,
                   int vocab, cudaStream_t s) {
  cross_entropy_kernel<<<static_cast<unsigned>(rows), 1024, 0, s>>>(logits, target, loss, dlogits,
                                                                    vocab);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
