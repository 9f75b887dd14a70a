#pragma once
// 16-byte accesses and reductions that the memory-bound kernels share.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace moecast::cuda {

using bf16 = __nv_bfloat16;
constexpr int kVec = 8;  ///< bf16 in 16 bytes

/// Eight bf16 that move as one access; a struct of __nv_bfloat162 would be copied one by one.
using Vec8 = uint4;

__device__ inline unsigned to_word(__nv_bfloat162 pair) {
  return *reinterpret_cast<const unsigned*>(&pair);
}
__device__ inline __nv_bfloat162 to_pair(unsigned word) {
  return *reinterpret_cast<const __nv_bfloat162*>(&word);
}

__device__ inline void unpack(Vec8 v, float (&out)[kVec]) {
  const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ inline Vec8 pack(const float (&in)[kVec]) {
  return {
      to_word(__floats2bfloat162_rn(in[0], in[1])), to_word(__floats2bfloat162_rn(in[2], in[3])),
      to_word(__floats2bfloat162_rn(in[4], in[5])), to_word(__floats2bfloat162_rn(in[6], in[7]))};
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}

/// Sum over the block, in every thread. `shared` holds 33 floats.
__device__ inline float block_sum(float x, float* shared) {
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x < 32) {
    const float part = threadIdx.x < (blockDim.x + 31) / 32 ? shared[threadIdx.x] : 0.f;
    const float total = warp_sum(part);
    if (threadIdx.x == 0) shared[32] = total;
  }
  __syncthreads();
  return shared[32];
}

}  // namespace moecast::cuda
