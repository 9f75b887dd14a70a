#include "calibrate/cuda/p2p_rows.cuh"

namespace moecast::cuda {
namespace {

constexpr int kDispatchWarps = 8, kDispatchStages = 3, kDispatchThreads = kDispatchWarps * 32;
static_assert(kDispatchWarps * kDispatchStages * kChunkBytes == kStaging);

/// Bit r: an expert of the token is on rank r.
__device__ unsigned destinations(const P2pWorld& world, const int* expert_of, int token) {
  const unsigned per_rank = static_cast<unsigned>(world.experts / world.ranks),
                 inverse = 0xffffffffu / per_rank + 1u;  // exact below 2^16 experts
  const auto bit = [&](int expert) {
    return 1u << (per_rank == 1 ? static_cast<unsigned>(expert)
                                : __umulhi(static_cast<unsigned>(expert), inverse));
  };
  unsigned mask = 0;
  const int* mine = expert_of + static_cast<std::size_t>(token) * world.topk;
  if (world.topk % 4 == 0) {
    for (int k = 0; k < world.topk; k += 4) {
      const int4 e = *reinterpret_cast<const int4*>(mine + k);
      mask |= bit(e.x) | bit(e.y) | bit(e.z) | bit(e.w);
    }
  } else {
    for (int k = 0; k < world.topk; ++k) mask |= bit(mine[k]);
  }
  return mask;
}

/// The slots of tokens [first, last), in token order, so that the layout is the same in every run:
/// every block counts those before its own. Who has the last token tells the peers how many rows
/// they get.
__device__ void lay_out(const P2pWorld& world, int me, const int* expert_of, int* slot, int first,
                        int last) {
  __shared__ int before[kMaxP2pRanks], of_warp[kDispatchWarps][kMaxP2pRanks];
  if (threadIdx.x < kMaxP2pRanks) before[threadIdx.x] = 0;
  __syncthreads();
  int seen[kMaxP2pRanks] = {};
#pragma unroll 4
  for (int token = static_cast<int>(threadIdx.x); token < first; token += kDispatchThreads) {
    const unsigned mask = destinations(world, expert_of, token);
#pragma unroll
    for (int r = 0; r < kMaxP2pRanks; ++r) seen[r] += static_cast<int>(mask >> r & 1u);
  }
#pragma unroll
  for (int r = 0; r < kMaxP2pRanks; ++r) {
    const int sum = __reduce_add_sync(0xffffffffu, seen[r]);
    if (lane_id() == 0 && sum != 0) atomicAdd(&before[r], sum);
  }
  __syncthreads();
  for (int start = first; start < last; start += kDispatchThreads) {
    const int token = start + static_cast<int>(threadIdx.x);
    const unsigned mask = token < last ? destinations(world, expert_of, token) : 0u;
    unsigned votes[kMaxP2pRanks];
#pragma unroll
    for (int r = 0; r < kMaxP2pRanks; ++r) {
      votes[r] = __ballot_sync(0xffffffffu, mask >> r & 1u);
      if (lane_id() == 0) of_warp[warp_id()][r] = __popc(votes[r]);
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kMaxP2pRanks; ++r) {
      if (r >= world.ranks || token >= last) continue;
      int place = before[r] + __popc(votes[r] & ((1u << lane_id()) - 1u));
      for (int w = 0; w < warp_id(); ++w) place += of_warp[w][r];
      slot[token * world.ranks + r] = (mask >> r & 1u) != 0 ? place : -1;
    }
    __syncthreads();
    if (threadIdx.x < kMaxP2pRanks)
      for (int w = 0; w < kDispatchWarps; ++w) before[threadIdx.x] += of_warp[w][threadIdx.x];
    __syncthreads();
  }
  if (last == world.tokens && threadIdx.x < static_cast<unsigned>(world.ranks))
    world.rank[threadIdx.x].sent[me] = before[threadIdx.x];
}

/// A block has consecutive tokens, its warps take their chunks in turn; lane r sends to rank r.
template <bool kHasLayout>
__global__ void __launch_bounds__(kDispatchThreads, 1)
    dispatch_kernel(const __grid_constant__ P2pWorld world, int me, const bf16* x,
                    const int* expert_of, const float* probs, int* slot) {
  extern __shared__ __align__(128) unsigned char staging[];
  __shared__ std::uint64_t barriers[kDispatchWarps][kDispatchStages];
  const Stages<kDispatchStages> stages(staging, barriers);
  const Chunks chunks(world);
  const int lane = lane_id(), topk = world.topk, ranks = world.ranks;
  const auto first_of = [&](int block) {
    return static_cast<int>(static_cast<long long>(world.tokens) * block / blocks());
  };
  const int first = first_of(block_id()), last = first_of(block_id() + 1);
  const int pieces = (last - first) * chunks.per_row;
  const auto token_of = [&](int piece) { return first + piece / chunks.per_row; };
  const auto load = [&](int turn) {
    const int piece = warp_id() + turn * kDispatchWarps, part = piece % chunks.per_row;
    if (piece < pieces && lane == 0)
      load_bulk(stages.at(turn), chunks.of(x, token_of(piece), part), chunks.bytes(part),
                stages.barrier(turn));
  };
  for (int turn = 0; turn < kDispatchStages - 1; ++turn) load(turn);
  if constexpr (!kHasLayout) {
    lay_out(world, me, expert_of, slot, first, last);
    __syncthreads();
  }
  const auto place_of = [&](int piece) {
    return piece < pieces && lane < ranks ? slot[token_of(piece) * ranks + lane] : -1;
  };
  int next_place = place_of(warp_id());
  for (int piece = warp_id(), turn = 0; piece < pieces; piece += kDispatchWarps, ++turn) {
    const int token = token_of(piece), part = piece % chunks.per_row, place = next_place;
    next_place = place_of(piece + kDispatchWarps);
    stages.wait(turn);
    if (place >= 0)
      store_bulk(chunks.of(world.rank[lane].rows,
                           static_cast<std::size_t>(me) * world.tokens + place, part),
                 stages.at(turn), chunks.bytes(part));
    commit_stores();
    if (part == 0) {
      const int expert = lane < topk ? expert_of[token * topk + lane] : 0;
      const float prob = lane < topk ? probs[token * topk + lane] : 0.f;
      for (int r = 0; r < ranks; ++r) {
        const int to = __shfl_sync(0xffffffffu, place, r);
        if (to < 0 || lane >= topk) continue;
        const std::size_t at = (static_cast<std::size_t>(me) * world.tokens + to) * topk + lane;
        world.rank[r].experts[at] = expert;
        world.rank[r].probs[at] = prob;
      }
    }
    wait_read<1>();
    __syncwarp();
    load(turn + kDispatchStages - 1);
  }
  wait_stored<0>();
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x < static_cast<unsigned>(ranks)) signal(world.rank[threadIdx.x].arrived + me);
  if (block_id() == 0 && warp_id() == 0) {
    const P2pRank& self = world.rank[me];
    const unsigned wanted = self.expected[0] + gridDim.x;
    __syncwarp();
    if (lane < ranks) wait_for(self.arrived + lane, wanted);
    __syncwarp();
    if (lane == 0) self.expected[0] = wanted;
  }
}

}  // namespace

void p2p_prepare_dispatch() {
  load_kernel(dispatch_kernel<true>);
  load_kernel(dispatch_kernel<false>);
}

void p2p_dispatch(const P2pWorld& world, int me, const bf16* x, const int* expert_of,
                  const float* probs, int* slot, bool has_layout, int sms, cudaStream_t s) {
  const auto kernel = has_layout ? dispatch_kernel<true> : dispatch_kernel<false>;
  kernel<<<static_cast<unsigned>(sms), kDispatchThreads, kStaging, s>>>(world, me, x, expert_of,
                                                                        probs, slot);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
