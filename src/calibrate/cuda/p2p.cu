#include "calibrate/cuda/p2p.hpp"

#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/vec.cuh"

namespace moecast::cuda {
namespace {

constexpr int kWarps = 8, kStages = 3;
constexpr int kChunkBytes = 7168;  ///< of a row, moved by one bulk copy
constexpr int kCombineThreads = 1024;
constexpr std::size_t kDispatchShared = static_cast<std::size_t>(kWarps) * kStages * kChunkBytes;

__device__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Bulk copies of Hopper and later (PTX cp.async.bulk): global to shared completes on an mbarrier,
// shared to global in bulk groups of the issuing thread.
#if __CUDA_ARCH__ >= 900
__device__ void barrier_init(std::uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ void load_bulk(void* to, const void* from, unsigned bytes, std::uint64_t* barrier) {
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
__device__ void wait_loaded(std::uint64_t* barrier, unsigned parity) {
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
__device__ void store_bulk(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// All but the latest group have read their shared memory.
__device__ void wait_read_but_one() {
  asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}
__device__ void wait_stored() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ void order_loads_before_reuse() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#else
__device__ void barrier_init(std::uint64_t*) {}
__device__ void load_bulk(void*, const void*, unsigned, std::uint64_t*) {}
__device__ void wait_loaded(std::uint64_t*, unsigned) {}
__device__ void store_bulk(void*, const void*, unsigned) {}
__device__ void commit_stores() {}
__device__ void wait_read_but_one() {}
__device__ void wait_stored() {}
__device__ void order_loads_before_reuse() {}
#endif

__device__ void signal(unsigned* flag) {
  asm volatile("red.release.sys.global.add.u32 [%0], 1;" ::"l"(flag) : "memory");
}
__device__ void wait_for(const unsigned* flag, unsigned wanted) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  } while (static_cast<int>(seen - wanted) < 0);
}

/// A block a destination; tokens in order, so that the layout is the same in every run.
__global__ void __launch_bounds__(1024)
    layout_kernel(const int* expert_of, int* slot, int tokens, int topk, int ranks, int experts) {
  __shared__ int warp_count[32];
  const int rank = static_cast<int>(blockIdx.x), per_rank = experts / ranks,
            lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int start = 0; start < tokens; start += 1024) {
    const int token = start + static_cast<int>(threadIdx.x);
    bool is_sent = false;
    if (token < tokens)
      for (int k = 0; k < topk; ++k) is_sent |= expert_of[token * topk + k] / per_rank == rank;
    const unsigned votes = __ballot_sync(0xffffffffu, is_sent);
    if (lane == 0) warp_count[threadIdx.x / 32] = __popc(votes);
    __syncthreads();
    int place = before + __popc(votes & ((1u << lane) - 1u)), total = 0;
    for (int w = 0; w < 32; ++w) {
      if (w < static_cast<int>(threadIdx.x) / 32) place += warp_count[w];
      total += warp_count[w];
    }
    if (token < tokens) slot[token * ranks + rank] = is_sent ? place : -1;
    before += total;
    __syncthreads();
  }
}

/// Every warp moves (token, chunk) pieces of its own through kStages of shared memory; lane r sends
/// to rank r.
__global__ void __launch_bounds__(kWarps * 32, 1)
    dispatch_kernel(const __grid_constant__ P2pWorld world, int me, const bf16* x,
                    const int* expert_of, const float* probs, const int* slot) {
  extern __shared__ __align__(128) unsigned char staging[];
  __shared__ std::uint64_t barriers[kWarps][kStages];
  __shared__ int places[kWarps][kStages][kMaxP2pRanks];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned row_bytes = static_cast<unsigned>(world.hidden) * sizeof(bf16);
  const int chunks = static_cast<int>((row_bytes + kChunkBytes - 1) / kChunkBytes);
  const int pieces = world.tokens * chunks, step = static_cast<int>(gridDim.x) * kWarps;
  const int first = static_cast<int>(blockIdx.x) * kWarps + warp;
  unsigned char* mine = staging + static_cast<std::size_t>(warp) * kStages * kChunkBytes;
  const auto bytes_of = [&](int piece) {
    return min(static_cast<unsigned>(kChunkBytes), row_bytes - piece % chunks * kChunkBytes);
  };
  const auto load = [&](int piece, int stage) {
    if (piece >= pieces) return;
    if (lane < world.ranks) places[warp][stage][lane] = slot[piece / chunks * world.ranks + lane];
    if (lane == 0)
      load_bulk(mine + stage * kChunkBytes,
                reinterpret_cast<const unsigned char*>(x) +
                    static_cast<std::size_t>(piece / chunks) * row_bytes +
                    piece % chunks * kChunkBytes,
                bytes_of(piece), &barriers[warp][stage]);
  };
  if (lane == 0)
    for (int i = 0; i < kStages; ++i) barrier_init(&barriers[warp][i]);
  order_loads_before_reuse();
  __syncwarp();
  for (int i = 0; i < kStages - 1; ++i) load(first + i * step, i);
  int turn = 0;
  for (int piece = first; piece < pieces; piece += step, ++turn) {
    const int stage = turn % kStages, token = piece / chunks, part = piece % chunks;
    wait_loaded(&barriers[warp][stage], static_cast<unsigned>(turn / kStages) & 1u);
    const int place = lane < world.ranks ? places[warp][stage][lane] : -1;
    if (place >= 0) {
      const std::size_t row = static_cast<std::size_t>(me) * world.tokens + place;
      store_bulk(reinterpret_cast<unsigned char*>(world.rank[lane].rows) + row * row_bytes +
                     part * kChunkBytes,
                 mine + stage * kChunkBytes, bytes_of(piece));
    }
    commit_stores();
    if (part == 0 && lane < world.topk) {
      const int expert = expert_of[token * world.topk + lane];
      const float prob = probs[token * world.topk + lane];
      for (int r = 0; r < world.ranks; ++r) {
        const int to = places[warp][stage][r];
        if (to < 0) continue;
        const std::size_t at =
            (static_cast<std::size_t>(me) * world.tokens + to) * world.topk + lane;
        world.rank[r].experts[at] = expert;
        world.rank[r].probs[at] = prob;
      }
    }
    wait_read_but_one();
    __syncwarp();
    load(piece + (kStages - 1) * step, (turn + kStages - 1) % kStages);
  }
  wait_stored();
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x < static_cast<unsigned>(world.ranks))
    signal(world.rank[threadIdx.x].arrived + me);
  if (blockIdx.x == 0 && threadIdx.x < 32) {
    const P2pRank& self = world.rank[me];
    const unsigned wanted = self.expected[0] + gridDim.x;
    __syncwarp();
    if (lane < world.ranks) wait_for(self.arrived + lane, wanted);
    __syncwarp();
    if (lane == 0) self.expected[0] = wanted;
  }
}

/// A warp a token: reads its rows where they are, adds in FP32.
__global__ void __launch_bounds__(kCombineThreads, 1)
    combine_kernel(const __grid_constant__ P2pWorld world, int me, const int* slot, bf16* out,
                   unsigned* blocks_done) {
  const P2pRank& self = world.rank[me];
  const int lane = static_cast<int>(threadIdx.x) % 32, vecs = world.hidden / kVec;
  const unsigned wanted = self.expected[1] + 1;
  if (blockIdx.x == 0 && threadIdx.x < static_cast<unsigned>(world.ranks))
    signal(world.rank[threadIdx.x].ready + me);
  if (threadIdx.x < static_cast<unsigned>(world.ranks)) wait_for(self.ready + threadIdx.x, wanted);
  __syncthreads();
  constexpr int kUnroll = 4;
  const int warps = static_cast<int>(gridDim.x) * kCombineThreads / 32;
  const int pieces_per_row = (vecs + 32 * kUnroll - 1) / (32 * kUnroll);
  for (int piece =
           (static_cast<int>(blockIdx.x) * kCombineThreads + static_cast<int>(threadIdx.x)) / 32;
       piece < world.tokens * pieces_per_row; piece += warps) {
    const int token = piece / pieces_per_row, from = piece % pieces_per_row * 32 * kUnroll + lane;
    float sum[kUnroll][kVec] = {};
    for (int r = 0; r < world.ranks; ++r) {
      const int place = slot[token * world.ranks + r];
      if (place < 0) continue;
      const auto* row = reinterpret_cast<const Vec8*>(world.rank[r].rows) +
                        (static_cast<std::size_t>(me) * world.tokens + place) * vecs;
      Vec8 v[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (from + 32 * u < vecs) v[u] = row[from + 32 * u];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (from + 32 * u >= vecs) continue;
        float f[kVec];
        unpack(v[u], f);
#pragma unroll
        for (int j = 0; j < kVec; ++j) sum[u][j] += f[j];
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (from + 32 * u < vecs)
        reinterpret_cast<Vec8*>(out)[static_cast<std::size_t>(token) * vecs + from + 32 * u] =
            pack(sum[u]);
  }
  // The last block to leave moves the target on: before that, every block has read it.
  __syncthreads();
  if (threadIdx.x == 0 && atomicInc(blocks_done, gridDim.x - 1) == gridDim.x - 1)
    self.expected[1] = wanted;
}

}  // namespace

void p2p_prepare() {
  check(cudaFuncSetAttribute(dispatch_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kDispatchShared)));
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, dispatch_kernel));
  check(cudaFuncGetAttributes(&attributes, combine_kernel));
  check(cudaFuncGetAttributes(&attributes, layout_kernel));
}

void p2p_layout(const P2pWorld& world, const int* expert_of, int* slot, cudaStream_t s) {
  layout_kernel<<<static_cast<unsigned>(world.ranks), 1024, 0, s>>>(
      expert_of, slot, world.tokens, world.topk, world.ranks, world.experts);
  check(cudaGetLastError());
}

void p2p_dispatch(const P2pWorld& world, int me, const bf16* x, const int* expert_of,
                  const float* probs, const int* slot, int sms, cudaStream_t s) {
  dispatch_kernel<<<static_cast<unsigned>(sms), kWarps * 32, kDispatchShared, s>>>(
      world, me, x, expert_of, probs, slot);
  check(cudaGetLastError());
}

void p2p_combine(const P2pWorld& world, int me, const int* slot, bf16* out, int sms,
                 cudaStream_t s) {
  combine_kernel<<<static_cast<unsigned>(sms), kCombineThreads, 0, s>>>(
      world, me, slot, out, world.rank[me].expected + 2);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
