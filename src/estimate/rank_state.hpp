#pragma once
/// Bytes that a rank holds all the time: weights, gradients, optimizer state, buffers (memory.md
/// sections 2, 6, 7; peaks 2.2-2.6).
#include "estimate/dims.hpp"
#include "estimate/rank_params.hpp"

namespace moecast {

struct RankState {
  double weights = 0, gradients = 0, optimizer = 0;
  double host = 0;  ///< pinned host memory of an offloaded optimizer
  double gradient_cast =
      0;  ///< fp32 copy of the gradient shard at the optimizer step (BF16 gradients)
};
RankState rank_state(const Problem& p, const Layout& l, const RankParams& params);

/// Persistent communication buffers of the EP dispatcher.
double dispatcher_buffer_bytes(const Problem& p, const Layout& l, const Dims& d);
/// Workspaces inside the allocator and the sequence-parallel gather buffer.
double workspace_bytes(const Problem& p, const Layout& l, const Dims& d, const RankParams& params,
                       int pp_rank);
/// Context, libraries and communicators: outside the allocator.
double outside_allocator_bytes(const Problem& p, const Layout& l);
/// Bytes per element of the compute weights of a TE linear (row- and column-wise quantised copies
/// included).
double linear_weight_bytes(const Problem& p, const Layout& l);
/// Bytes per element that the parameter all-gather moves.
double param_gather_bytes(const Problem& p, const Layout& l);
/// Adam state: master, first and second moment bytes per element of the shard.
double optimizer_bytes_per_param(const Problem& p, const Layout& l);

}  // namespace moecast
