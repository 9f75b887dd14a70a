#pragma once
/// Parameter counts per block, in elements of the whole model, split by what tensor parallelism
/// does with them. Every row names the row of Megatron's weight shapes it comes from
/// (docs/architecture.md "Parameters").
#include "moecast/model_spec.hpp"

namespace moecast {

/// Weights of one block. With tensor parallel size t a rank holds (column_parallel + row_parallel)
/// / t + replicated.
struct BlockParams {
  double column_parallel = 0;  ///< output dimension divided by t
  double row_parallel = 0;     ///< input dimension divided by t
  double replicated =
      0;  ///< whole on every tensor parallel rank (norms, MLA down projections, router ...)
  /// Sparse-attention indexer and token compressors: whole on every rank. Published sizes (and
  /// ParamCount) leave them out.
  double indexer = 0;

  [[nodiscard]] double split() const { return column_parallel + row_parallel; }
  [[nodiscard]] double counted() const { return split() + replicated; }
  [[nodiscard]] double on_rank(int tp) const { return split() / tp + replicated + indexer; }
  BlockParams& operator+=(const BlockParams& o);
};

/// The token mixer without its input norm.
BlockParams mixer_params(const ModelSpec& m, const Mixer& mixer);

/// Dense MLP of width ffn_hidden_size: gated fc1 u h f, fc2 h f (u = 2 if gated, else 1).
BlockParams dense_mlp_params(const ModelSpec& m);

/// The parts of one MoE layer. Experts are divided by EP and expert TP, the rest by the attention's
/// TP.
struct MoeParams {
  double router = 0;      ///< h E, replicated (the aux-loss-free bias is a buffer, not a parameter)
  double latent = 0;      ///< down and up projection 2 h z, not divided
  BlockParams shared;     ///< shared expert (u+1) h fs; its gate h is replicated
  double expert_fc1 = 0;  ///< one expert: u hx fe (+ bias); hx = latent size or h
  double expert_fc2 = 0;  ///< one expert: hx fe (+ bias)

  [[nodiscard]] double one_expert() const { return expert_fc1 + expert_fc2; }
};
MoeParams moe_params(const ModelSpec& m);

/// One norm over the hidden size: h (RMSNorm) or 2h (LayerNorm).
double norm_params(const ModelSpec& m);

/// Input norms of a layer: one before the mixer, one before the feed-forward part, as far as it has
/// them.
double layer_norm_params(const ModelSpec& m, const LayerKind& layer);

/// What an MTP depth adds to its pattern's layers: eh_proj 2h^2 (column parallel) and three norms.
BlockParams mtp_extra_params(const ModelSpec& m);

/// One layer, experts included: total elements, and those a token uses (k of E experts).
struct LayerParams {
  double total = 0;
  double active = 0;
};
LayerParams layer_params(const ModelSpec& m, const LayerKind& layer);

/// Input embedding (and, when untied, the output layer) without vocabulary padding: V h.
double embedding_params(const ModelSpec& m);

}  // namespace moecast
