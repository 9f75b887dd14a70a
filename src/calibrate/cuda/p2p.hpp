#pragma once
/// Expert-parallel dispatch and combine inside one NVLink domain, by peer access: one copy of a
/// token per destination rank, on a given number of SMs.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace moecast::cuda {

inline constexpr int kMaxP2pRanks = 8;

/// What one rank owns and its peers write to or read. Row `source * tokens + slot` holds the token
/// that `source` sent as its slot-th.
struct P2pRank {
  __nv_bfloat16* rows;  ///< [ranks][tokens][hidden]
  int* experts;         ///< [ranks][tokens][topk]
  float* probs;         ///< [ranks][tokens][topk]
  unsigned* arrived;    ///< [ranks] blocks of each source that have sent everything
  unsigned* ready;      ///< [ranks] combines each source has begun
  unsigned*
      expected;  ///< [3] what arrived and ready must reach, combine blocks that are done; local
};

struct P2pWorld {
  P2pRank rank[kMaxP2pRanks];
  int ranks, tokens, hidden, topk, experts;
};

/// slot[token][rank]: the token's place among those sent to that rank, -1 if it is not.
void p2p_layout(const P2pWorld& world, const int* expert_of, int* slot, cudaStream_t s);
/// Sends rows, expert ids and probabilities; ends when everything sent to `me` has arrived.
void p2p_dispatch(const P2pWorld& world, int me, const __nv_bfloat16* x, const int* expert_of,
                  const float* probs, const int* slot, int sms, cudaStream_t s);
/// Sums the rows that the other ranks hold of my tokens; begins when every rank has called it.
void p2p_combine(const P2pWorld& world, int me, const int* slot, __nv_bfloat16* out, int sms,
                 cudaStream_t s);
/// Loads the kernels on the current device: a first launch that waits for a peer must not load
/// code.
void p2p_prepare();

}  // namespace moecast::cuda
