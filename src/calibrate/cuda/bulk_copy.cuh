#pragma once
// Bulk copies of Hopper and later (PTX cp.async.bulk): global to shared completes on an mbarrier,
// shared to global in bulk groups of the issuing thread. Nothing on older devices.
#include <cstdint>

namespace moecast::cuda {

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

#if __CUDA_ARCH__ >= 900
__device__ inline void barrier_init(std::uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void load_bulk(void* to, const void* from, unsigned bytes,
                                 std::uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
__device__ inline void wait_loaded(std::uint64_t* barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}
__device__ inline void store_bulk(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// All but the latest kRunning groups have read their shared memory.
template <int kRunning>
__device__ inline void wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kRunning) : "memory");
}
/// All but the latest kRunning groups have arrived.
template <int kRunning>
__device__ inline void wait_stored() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kRunning) : "memory");
}
__device__ inline void order_loads_before_reuse() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#else
__device__ inline void barrier_init(std::uint64_t*) {}
__device__ inline void load_bulk(void*, const void*, unsigned, std::uint64_t*) {}
__device__ inline void wait_loaded(std::uint64_t*, unsigned) {}
__device__ inline void store_bulk(void*, const void*, unsigned) {}
__device__ inline void commit_stores() {}
template <int>
__device__ inline void wait_read() {}
template <int>
__device__ inline void wait_stored() {}
__device__ inline void order_loads_before_reuse() {}
#endif

}  // namespace moecast::cuda
