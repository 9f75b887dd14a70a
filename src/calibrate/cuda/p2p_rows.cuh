#pragma once
// What dispatch and combine share: rows that move through shared memory, flags that tell of them.
#include <cstdint>
#include <type_traits>

#include "calibrate/cuda/bulk_copy.cuh"
#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/p2p.hpp"
#include "calibrate/cuda/vec.cuh"

namespace moecast::cuda {

constexpr int kChunkBytes = 7168;  ///< of a row, moved by one bulk copy
constexpr std::size_t kStaging = std::size_t{24} * kChunkBytes;  ///< of a block, over its warps

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x) / 32; }
__device__ inline int block_id() { return static_cast<int>(blockIdx.x); }
__device__ inline int blocks() { return static_cast<int>(gridDim.x); }

__device__ inline void signal(unsigned* flag) {
  asm volatile("red.release.sys.global.add.u32 [%0], 1;" ::"l"(flag) : "memory");
}
__device__ inline void publish(unsigned* flag, unsigned value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ inline void publish_in_block(int* count, int value) {
  asm volatile("st.release.cta.shared::cta.s32 [%0], %1;" ::"r"(shared_address(count)), "r"(value)
               : "memory");
}
__device__ inline int seen_in_block(const int* count) {
  int seen;
  asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];"
               : "=r"(seen)
               : "r"(shared_address(count))
               : "memory");
  return seen;
}
__device__ inline void wait_for(const unsigned* flag, unsigned wanted) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  } while (static_cast<int>(seen - wanted) < 0);
}

/// The shared memory of one warp: stage i holds every kStages-th piece.
template <int kStages>
struct Stages {
  unsigned char* bytes;
  std::uint64_t* loaded;

  __device__ Stages(unsigned char* staging, std::uint64_t (*barriers)[kStages])
      : bytes(staging + static_cast<std::size_t>(warp_id()) * kStages * kChunkBytes),
        loaded(barriers[warp_id()]) {
    if (lane_id() == 0)
      for (int i = 0; i < kStages; ++i) barrier_init(loaded + i);
    order_loads_before_reuse();
    __syncwarp();
  }
  __device__ unsigned char* at(int turn) const { return bytes + turn % kStages * kChunkBytes; }
  __device__ std::uint64_t* barrier(int turn) const { return loaded + turn % kStages; }
  __device__ void wait(int turn) const {
    wait_loaded(barrier(turn), static_cast<unsigned>(turn / kStages) & 1u);
  }
};

/// Rows are moved in chunks of kChunkBytes and a rest.
struct Chunks {
  unsigned row_bytes;
  int per_row;

  __device__ explicit Chunks(const P2pWorld& world)
      : row_bytes(static_cast<unsigned>(world.hidden) * sizeof(bf16)),
        per_row(static_cast<int>((row_bytes + kChunkBytes - 1) / kChunkBytes)) {}
  __device__ unsigned bytes(int part) const {
    return min(static_cast<unsigned>(kChunkBytes), row_bytes - part * kChunkBytes);
  }
  template <typename Pointer>
  __device__ auto* of(Pointer* rows, std::size_t row, int part) const {
    return reinterpret_cast<std::conditional_t<std::is_const_v<Pointer>, const char, char>*>(rows) +
           row * row_bytes + part * kChunkBytes;
  }
};

/// On the current device.
template <typename Kernel>
void load_kernel(Kernel* kernel) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kStaging)));
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel));
}

}  // namespace moecast::cuda
