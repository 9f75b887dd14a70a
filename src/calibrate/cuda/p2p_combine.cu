#include "calibrate/cuda/p2p_rows.cuh"

namespace moecast::cuda {
namespace {

/// Few rows under way at a time let the first of them be added early.
constexpr int kSenders = 4, kSenderStages = 6, kAddWarps = 32;  ///< warps of a block
static_assert(kSenders * kSenderStages * kChunkBytes == kStaging);
constexpr int kSignalLag = 2;  ///< pieces after which a row that went out has arrived
/// A combine on fewer SMs reads its rows from its peers, which needs no other SM to add. On more,
/// one block in kBlocksPerSender writes rows back, which is faster, and the others add; more than
/// kMaxSendBlocks would only put more rows under way at once.
constexpr int kSmsToSend = 64, kBlocksPerSender = 4, kMaxSendBlocks = 24;

__device__ int send_blocks() { return min(blocks() / kBlocksPerSender, kMaxSendBlocks); }

/// The rows that a sender's warp writes back: every step-th of those that one peer has sent me.
struct Returns {
  int peer, first, step, rows;  ///< rows: how many of them

  __device__ Returns(const P2pWorld& world, int me, int warp) {
    const int peers = world.ranks - 1, index = block_id() * kSenders + warp;
    peer = (me + 1 + index % peers) % world.ranks;
    first = index / peers;
    step = send_blocks() * kSenders / peers;
    const int left = world.rank[me].sent[peer] - first;
    rows = first < step ? max(0, (left + step - 1) / step) : 0;
  }
  /// Place in [ranks][tokens] of the i-th, of the rank `owner`.
  __device__ std::size_t at(const P2pWorld& world, int owner, int i) const {
    return static_cast<std::size_t>(owner) * world.tokens + first + i * step;
  }
};

/// Writes the rows that I hold of my peers' tokens back to them, in the order in which they came,
/// and counts in `arrived` what is there. Writes, because reads over NVLink reach 85 % of what
/// these do.
__device__ void send_back(const P2pWorld& world, int me, unsigned wanted,
                          const Stages<kSenderStages>& stages, int* arrived) {
  const P2pRank& self = world.rank[me];
  const Returns mine(world, me, warp_id());
  const Chunks chunks(world);
  const int lane = lane_id(), turns = mine.rows * chunks.per_row;
  int next_row = 0, next_part = 0;
  const auto load = [&](int turn) {
    if (next_row >= mine.rows) return;
    if (lane == 0)
      load_bulk(stages.at(turn),
                chunks.of(self.rows, mine.at(world, mine.peer, next_row), next_part),
                chunks.bytes(next_part), stages.barrier(turn));
    if (++next_part == chunks.per_row) next_part = 0, ++next_row;
  };
  for (int turn = 0; turn < kSenderStages - 1; ++turn) load(turn);
  if (lane < world.ranks) wait_for(self.ready + lane, wanted);
  __syncwarp();
  for (int turn = 0, row = 0, part = 0; turn < turns; ++turn) {
    stages.wait(turn);
    if (lane == 0)
      store_bulk(chunks.of(world.rank[mine.peer].back, mine.at(world, me, row), part),
                 stages.at(turn), chunks.bytes(part));
    commit_stores();
    if (++part == chunks.per_row) part = 0, ++row;
    wait_read<1>();
    __syncwarp();
    load(turn + kSenderStages - 1);
    wait_stored<kSignalLag>();
    if (lane == 0) publish_in_block(arrived, turn + 1 - kSignalLag);
  }
  wait_stored<0>();
  if (lane == 0) publish_in_block(arrived, turns);
}

/// Raises the flags of rows that have arrived; lane i for the i-th sender. A warp of its own: what
/// it waits for, the fence, would hold a sender up.
__device__ void tell(const P2pWorld& world, int me, unsigned wanted, const int* arrived) {
  const int lane = lane_id(), per_row = Chunks(world).per_row;
  const bool is_sender = lane < kSenders;
  const Returns its(world, me, is_sender ? lane : 0);
  int told = 0;
  while (__any_sync(0xffffffffu, is_sender && told < its.rows)) {
    const int there = is_sender ? seen_in_block(arrived + lane) / per_row : 0;
    if (!__any_sync(0xffffffffu, told < there)) continue;
    __threadfence_system();
    for (; told < there; ++told)
      publish(world.rank[its.peer].returned + its.at(world, me, told), wanted);
  }
}

/// Adds a part of a row, 32 * kUnroll vectors from `from` on.
template <int kUnroll>
__device__ void add_row(float (&sum)[kUnroll][kVec], const Vec8* row, int from, int vecs) {
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

/// A warp a part of a token: adds its rows in FP32, my own and then those of the other ranks in
/// their order, from `back` as they arrive there or (kReads) where the peers hold them.
template <bool kReads>
__device__ void add_up(const P2pWorld& world, int me, unsigned wanted, const int* slot, bf16* out) {
  constexpr int kUnroll = 4;
  const P2pRank& self = world.rank[me];
  const int lane = lane_id(), ranks = world.ranks, vecs = world.hidden / kVec;
  const int parts = (vecs + 32 * kUnroll - 1) / (32 * kUnroll), pieces = world.tokens * parts;
  const int senders = kReads ? 0 : send_blocks(), step = (blocks() - senders) * kAddWarps;
  const auto place_of = [&](int piece) {
    return piece < pieces && lane < ranks ? slot[piece / parts * ranks + lane] : -1;
  };
  const auto row_of = [&](const bf16* rows, int rank, int at) {
    return reinterpret_cast<const Vec8*>(rows) +
           (static_cast<std::size_t>(rank) * world.tokens + at) * vecs;
  };
  int piece = (block_id() - senders) * kAddWarps + warp_id(), next_place = place_of(piece);
  for (; piece < pieces; piece += step) {
    const int place = next_place, from = piece % parts * 32 * kUnroll + lane;
    next_place = place_of(piece + step);
    float sum[kUnroll][kVec] = {};
    const int mine = __shfl_sync(0xffffffffu, place, me);
    if (mine >= 0) add_row(sum, row_of(self.rows, me, mine), from, vecs);
    if (!kReads && place >= 0 && lane != me)
      wait_for(self.returned + static_cast<std::size_t>(lane) * world.tokens + place, wanted);
    __syncwarp();
    for (int r = 0; r < ranks; ++r) {
      const int at = __shfl_sync(0xffffffffu, place, r);
      if (at < 0 || r == me) continue;
      add_row(sum, kReads ? row_of(world.rank[r].rows, me, at) : row_of(self.back, r, at), from,
              vecs);
    }
    auto* to = reinterpret_cast<Vec8*>(out) + static_cast<std::size_t>(piece / parts) * vecs + from;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (from + 32 * u < vecs) to[32 * u] = pack(sum[u]);
  }
}

template <bool kReads>
__global__ void __launch_bounds__(kAddWarps * 32, 1)
    combine_kernel(const __grid_constant__ P2pWorld world, int me, const int* slot, bf16* out) {
  extern __shared__ __align__(128) unsigned char staging[];
  __shared__ std::uint64_t barriers[kSenders][kSenderStages];
  __shared__ int arrived[kSenders];
  const P2pRank& self = world.rank[me];
  const unsigned wanted = self.expected[1] + 1;
  if (threadIdx.x < kSenders) arrived[threadIdx.x] = 0;
  if (block_id() == 0 && threadIdx.x < static_cast<unsigned>(world.ranks))
    signal(world.rank[threadIdx.x].ready + me);  // my rows are there, what came last time is added
  if (kReads && threadIdx.x < static_cast<unsigned>(world.ranks))
    wait_for(self.ready + threadIdx.x, wanted);
  __syncthreads();
  // Stores that wait for the link hold up every access of their SM: who adds has an SM of its own.
  if (kReads || block_id() >= send_blocks()) {
    add_up<kReads>(world, me, wanted, slot, out);
  } else if (warp_id() < kSenders) {
    send_back(world, me, wanted, Stages<kSenderStages>(staging, barriers), arrived + warp_id());
  } else if (warp_id() == kSenders) {
    tell(world, me, wanted, arrived);
  }
  // The last block to leave moves the target on: before that, every block has read it.
  __syncthreads();
  if (threadIdx.x == 0 && atomicInc(self.expected + 2, gridDim.x - 1) == gridDim.x - 1)
    self.expected[1] = wanted;
}

}  // namespace

void p2p_prepare_combine() {
  load_kernel(combine_kernel<true>);
  load_kernel(combine_kernel<false>);
}

void p2p_combine(const P2pWorld& world, int me, const int* slot, bf16* out, int sms,
                 cudaStream_t s) {
  const bool reads = world.ranks == 1 || sms < kSmsToSend;
  const auto kernel = reads ? combine_kernel<true> : combine_kernel<false>;
  kernel<<<static_cast<unsigned>(sms), kAddWarps * 32, reads ? 0 : kStaging, s>>>(world, me, slot,
                                                                                  out);
  check(cudaGetLastError());
}

}  // namespace moecast::cuda
