#pragma once
/// What one layer keeps from forward to backward, and what it needs for a moment. Bytes per
/// microbatch on one rank. Two stacks: T = TransformerEngine, L = Megatron's local PyTorch stack;
/// the differences were measured (single-node studies and H200 runs). Notation of the formulas: N
/// tokens of a CP rank, n = N / t with sequence parallel, h hidden, R rows that the local experts
/// receive, fe expert ffn / ETP, u = 2 with GLU else 1.
#include <cstdint>
#include <string_view>
#include <vector>

#include "estimate/dims.hpp"
#include "estimate/layer_ops.hpp"

namespace moecast {

struct SavedTensor {
  std::string_view name;
  double bytes = 0;
  std::uint16_t dropped_by = 0;    ///< mask of RecomputeModule
  std::uint16_t offloaded_by = 0;  ///< mask of OffloadModule
  std::uint8_t captured_by = 0;    ///< mask of GraphModule: lives in the graph's private pool
  std::string_view formula;
};

/// The largest of several moments of one layer.
struct Transient {
  double bytes = 0;
  const char* formula = "";
  void consider(double other, const char* by) {
    if (other <= bytes) return;
    bytes = other;
    formula = by;
  }
};
/// TE: permuted send rows, received rows, expert output and its unsorted copy, combined rows,
/// output.
inline constexpr const char* kCombineFormula = "8 hx R + 2hn (+ 2hn with shared experts)";

struct LayerMemory {
  std::vector<SavedTensor> saved;
  double input = 0;            ///< 2hn: what full recompute keeps
  double forward_combine = 0;  ///< more than `saved` at the combine of the forward (alltoall: 2.10)
  Transient backward;          ///< more than `saved` in the worst moment of the layer's backward
  double attributes = 0;  ///< what the dispatcher holds between steps (probabilities and map: 5En)
  double leftover = 0;    ///< kept after a recomputed MoE block until it runs again: 4hn
  double refill_moe_act = 0, refill_norms = 0;  ///< second copies while discarded outputs return
  [[nodiscard]] double stored(std::uint16_t recompute) const;
  [[nodiscard]] double offloadable(std::uint16_t recompute, std::uint16_t offload) const;
  /// Transient of selective recomputation in this layer's backward.
  [[nodiscard]] double rebuilt(std::uint16_t recompute) const;
  /// Part of stored() that graphs of these modules capture (0xff: all).
  [[nodiscard]] double captured(std::uint16_t recompute, std::uint8_t modules) const;
};

LayerMemory layer_memory(const Problem& p, const ShardKey& k, const LayerKind& layer);

/// Final norm, logits and loss on the stage that has them.
struct HeadMemory {
  double stored = 0;     ///< final norm in and out: 4hn
  double mtp = 0;        ///< what every MTP depth's loss keeps until its backward
  double loss = 0;       ///< more than stored in the loss (logits, fp32 copies)
  double out_layer = 0;  ///< more than stored in the output layer's backward
  const char* loss_formula = "";
  const char* out_layer_formula = "";
};
HeadMemory head_memory(const Problem& p, const ShardKey& k);

constexpr std::uint16_t mask(OffloadModule m) {
  return static_cast<std::uint16_t>(1u << static_cast<int>(m));
}

}  // namespace moecast
