#pragma once
/// Expert-parallel dispatch and combine inside one NVLink domain, by peer access: one copy of a
/// token per destination rank, on a given number of SMs.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace moecast::cuda {

inline constexpr int kMaxP2pRanks = 8;

/// What one rank owns and its peers write to. Row `source * tokens + slot` of `rows` holds the
/// token that `source` sent as its slot-th; row `rank * tokens + slot` of `back` what `rank` made
/// of the token that I sent it as its slot-th.
struct P2pRank {
  __nv_bfloat16 *rows, *back;  ///< [ranks][tokens][hidden]
  int* experts;                ///< [ranks][tokens][topk]
  float* probs;                ///< [ranks][tokens][topk]
  int* sent;                   ///< [ranks] rows that each source has sent
  unsigned* arrived;           ///< [ranks] blocks of each source that have sent everything
  unsigned* returned;          ///< [ranks][tokens] the combine that last wrote this row of `back`
  unsigned* ready;             ///< [ranks] combines each rank has begun
  unsigned*
      expected;  ///< [3] what arrived and ready must reach, combine blocks that are done; local
};

struct P2pWorld {
  P2pRank rank[kMaxP2pRanks];
  int ranks, tokens, hidden, topk, experts;
};

/// Sends rows, expert ids and probabilities; ends when everything sent to `me` has arrived.
/// slot[token][rank] is the token's place among those sent to that rank, -1 if it is not: written
/// first unless `has_layout`, when it and `sent` are those of an earlier call.
void p2p_dispatch(const P2pWorld& world, int me, const __nv_bfloat16* x, const int* expert_of,
                  const float* probs, int* slot, bool has_layout, int sms, cudaStream_t s);
/// Sums the rows that the ranks hold of my tokens; sends begin when every rank has called it.
void p2p_combine(const P2pWorld& world, int me, const int* slot, __nv_bfloat16* out, int sms,
                 cudaStream_t s);
/// Load the kernels on the current device: a first launch that waits for a peer must not load
/// code.
void p2p_prepare_dispatch();
void p2p_prepare_combine();

}  // namespace moecast::cuda
