#pragma once
/// Bytes that a rank holds all the time: weights, gradients, optimizer state, dispatcher
/// buffers, workspaces. Refs: megatron/core/optimizer/distrib_optimizer.py and optimizer_config.py,
/// core/distributed/param_and_grad_buffer.py; peaks of SimuMax's B200 study and of H200 runs.
#include "estimate/dims.hpp"
#include "estimate/rank_params.hpp"
#include "estimate/terms.hpp"

namespace moecast {

struct RankState {
  double weights = 0, gradients = 0, optimizer = 0;
  double moments = 0;         ///< part of optimizer that step 1 creates at its end
  double host = 0;            ///< pinned host memory of an offloaded optimizer
  double optimizer_step = 0;  ///< copies that live during the optimizer step only
  [[nodiscard]] double total() const { return weights + gradients + optimizer; }
};
struct RankStateTerms {
  Terms weights, gradients, master, moments, host, optimizer_step;
};
RankStateTerms rank_state_terms(const Problem& p, const Layout& l, const RankParams& params,
                                int pp_rank);
RankState rank_state(const Problem& p, const Layout& l, const RankParams& params, int pp_rank);

/// Elements that DDP adds to a buffer so that every bucket divides by lcm(D, 128). Ref:
/// megatron/core/distributed/param_and_grad_buffer.py.
double bucket_padding(double elements, int shards, double buckets);

/// Persistent communication buffers of the EP dispatcher (dispatcher_memory.cpp).
Terms dispatcher_terms(const Problem& p, const ShardKey& k, const Dims& d);
/// Bytes of a cuBLAS workspace, held in the allocator from the first GEMM of its handle or stream
/// on: 32 MiB on Hopper and later (PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp;
/// TransformerEngine common/gemm).
inline constexpr double kCublasWorkspace = 32.0 * 1024 * 1024;
/// Of PyTorch's GEMMs: the autograd thread has a handle of its own (bench/memory_probe).
inline constexpr double kCublasWorkspaces = 2 * kCublasWorkspace;
/// Workspaces inside the allocator and the sequence-parallel gather buffer (workspace_memory.cpp).
Terms workspace_terms(const Problem& p, const Layout& l, const Dims& d, const RankParams& params,
                      int pp_rank);
/// Context, libraries and communicators: outside the allocator.
Terms outside_allocator_terms(const Problem& p, const Layout& l);

/// Bytes per element of the compute weights of a TE linear (row- and column-wise quantised copies
/// included).
double linear_weight_bytes(const Problem& p, const Layout& l);
/// Bytes per element that the parameter all-gather moves.
double param_gather_bytes(const Problem& p, const Layout& l);
/// Adam state: master, first and second moment bytes per element of the shard.
double optimizer_bytes_per_param(const Layout& l);

}  // namespace moecast
