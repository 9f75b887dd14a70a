#pragma once
/// The knobs that decide what one rank's part of a layer costs, and the sizes that follow from
/// them.
#include <cstdint>

#include "estimate/problem.hpp"

namespace moecast {

/// Key of the layer tables: pp, vpp, dp, recompute, offload, graphs and overlap flags are NOT here.
struct ShardKey {
  int tp = 1, cp = 1, ep = 1, etp = 1, micro_batch_size = 1;
  Precision precision = Precision::bf16;
  Dispatcher dispatcher = Dispatcher::alltoall;
  int dispatcher_num_sms = 0;
  bool sequence_parallel = false, tp_comm_overlap = false;
  CpCommType cp_comm_type = CpCommType::p2p;
  DType grad_dtype = DType::fp32;
  bool operator==(const ShardKey&) const = default;
};
ShardKey shard_key(const Layout& l);

/// Mask of RecomputeModule that selective recomputation repeats; 0 without it.
std::uint16_t selective_modules(const Layout& l);
/// Mask of GraphModule that per-layer graphs capture; graphs that name no module capture whole
/// layers (0xff).
std::uint8_t captured_modules(const Layout& l);

/// Sizes on one rank. N tokens of a CP rank, n tokens after sequence parallelism.
struct Dims {
  double N = 0, n = 0;
  double t = 1;  ///< tp
  double h = 0;
  double vocab = 0;          ///< padded vocabulary / tp
  double local_experts = 0;  ///< e = E / EP
  double expert_ffn = 0;     ///< fe / ETP
  double expert_width = 0;   ///< hidden or latent width of routed experts
  double rows = 0;  ///< R: rows that the busiest rank's experts compute, alignment padding included
  double rows_held = 0;  ///< rows that it has memory for: R, or a static budget
  double imbalance = 1;  ///< rows of the busiest EP rank over the mean
  double glu = 2;        ///< fc1 outputs per ffn unit: 2 gated, 1 not
};
Dims make_dims(const Problem& p, const ShardKey& k);

/// Mean keys per query: causal half, or the mean of min(position, window).
double mean_context(double seq_length, int window);

}  // namespace moecast
