/// Feed-forward, MTP and logits, and the sum over layers. Ref: flop_utils.py, transformer_flops and
/// hybrid_flops.
#include "model/flops.hpp"
#include "moecast/model_io.hpp"

namespace moecast {

double mixer_flops(const ModelSpec& m, const Mixer& mixer, int seq_length) {
  switch (mixer.kind) {
    case MixerKind::none:
      return 0.0;
    case MixerKind::gqa:
      return gqa_flops(m, mixer, seq_length);
    case MixerKind::mla:
      return mla_flops(m, mixer, seq_length);
    case MixerKind::csa:
      return csa_flops(m, mixer, seq_length);
    case MixerKind::gdn:
      return gdn_flops(m, mixer);
    case MixerKind::kda:
      return kda_flops(m, mixer);
    case MixerKind::mamba:
      return mamba_flops(m, mixer);
  }
  return 0.0;
}

/// The router's GEMM and the shared expert's gate are not counted.
double ffn_flops(const ModelSpec& m, FfnKind kind) {
  const double h = m.hidden_size, matrices = m.gated_linear_unit ? 3.0 : 2.0;
  if (kind == FfnKind::none) return 0.0;
  if (kind == FfnKind::dense) return 6.0 * h * m.ffn_hidden_size * matrices;
  const double z = m.moe.moe_latent_size;
  const double width = z > 0 ? z : h;
  const double experts =
      width * m.moe.moe_ffn_hidden_size * m.moe.moe_router_topk * matrices + 2.0 * h * z;
  return 6.0 * (experts + h * m.moe.moe_shared_expert_intermediate_size * matrices);
}

double layer_model_flops_per_token(const ModelSpec& m, const LayerKind& layer, int seq_length) {
  return mixer_flops(m, m.mixers.at(layer.mixer), seq_length) + ffn_flops(m, layer.ffn);
}

int padded_vocab_size(const ModelSpec& m, int tp) {
  const long long multiple = static_cast<long long>(m.make_vocab_size_divisible_by) * tp;
  return static_cast<int>((m.vocab_size + multiple - 1) / multiple * multiple);
}

double model_flops_per_token(const ModelSpec& m, int seq_length, int tp) {
  const double h = m.hidden_size, depths = m.mtp_num_layers;
  double decoder = 0.0, depth = 0.0;
  for (const LayerKind& layer : m.layers)
    decoder += layer_model_flops_per_token(m, layer, seq_length);
  for (const LayerKind& layer : m.mtp_pattern)
    depth += layer_model_flops_per_token(m, layer, seq_length);
  // norms and eh_proj of an MTP depth; the hybrid path leaves them out
  if (!m.hybrid) depth += 6.0 * (3.0 * h + 2.0 * h * h);
  const double logits = 6.0 * h * padded_vocab_size(m, tp);
  return decoder + depths * depth + logits * (1.0 + depths);
}

}  // namespace moecast
