// Activations that the token mixers keep. Ref: Megatron core/transformer/attention.py,
// multi_latent_attention.py, core/ssm; corrections measured on B200 (TE stack) and H200 (local
// stack) runs.
#include "estimate/saved.hpp"

namespace moecast {
namespace {

struct NormNames {
  const char *input, *output, *rstd;
};
constexpr NormNames kAttentionNorm{"attention norm input", "attention norm output",
                                   "attention norm rstd"};
constexpr NormNames kMambaNorm{"mamba norm input", "mamba norm output", "mamba norm rstd"};

/// Norm input (the residual stream) and its output, which the next linear keeps (quantised when it
/// computes in low precision).
void save_norm(SavedWriter& w, const NormNames& names, std::uint16_t dropped_by,
               OffloadModule input_group) {
  const Dims& d = w.dims;
  w.save(names.input, 2 * d.h * d.n, 0, mask(input_group), "2hn");
  w.save(names.output, w.linear_input_bytes() * d.h * d.n, dropped_by,
         mask(OffloadModule::qkv_linear), "2hn");
  w.save(names.rstd, 4 * d.n, dropped_by, 0, "4n");
}

void save_core(SavedWriter& w, const Mixer& m, double width_out) {
  const Dims& d = w.dims;
  const double out = w.attention_bytes() * d.N * width_out / d.t;
  const auto core = mask(OffloadModule::core_attn);
  w.save("attention output", out, 0,
         static_cast<std::uint16_t>(core | mask(OffloadModule::attn_proj)), "2N na dv / t");
  if (!w.problem.features.unfused_attention) {
    w.save("attention log-sum-exp", 4 * d.N * m.num_attention_heads / d.t,
           mask(RecomputeModule::core_attn), core, "4N na / t");
  }
  if (w.low_precision() && !w.problem.features.fp8_attention) {
    w.save("attention output, quantised for proj", w.quantised_bytes() * d.N * width_out / d.t, 0,
           mask(OffloadModule::attn_proj), "1N na dv / t");
  }
  // the all-to-all exchanges keep the output on both sides of the exchange (TE 2.8 and later)
  if (w.key.cp > 1 &&
      (w.key.cp_comm_type == CpCommType::a2a || w.key.cp_comm_type == CpCommType::a2a_p2p)) {
    w.save("attention output before cp exchange", out, 0, core, "2N na dv / t");
  }
  if (w.problem.features.unfused_attention) {
    const double scores = static_cast<double>(w.key.micro_batch_size) * w.problem.seq_length *
                          w.problem.seq_length * m.num_attention_heads / d.t / w.key.cp;
    w.save("attention scores, unfused", 6 * scores, mask(RecomputeModule::core_attn), core,
           "6 b s^2 na / t");
  }
}

void save_gqa(SavedWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double q = static_cast<double>(m.num_attention_heads) * m.qk_head_dim;
  const double k = static_cast<double>(m.num_query_groups) * m.qk_head_dim;
  const double v = static_cast<double>(m.num_query_groups) * m.v_head_dim;
  const double per = 2 * d.N / d.t;
  const auto core = mask(OffloadModule::core_attn);
  const bool local = !w.problem.features.transformer_engine;
  save_norm(w, kAttentionNorm, local ? mask(RecomputeModule::layernorm) : std::uint16_t{0},
            OffloadModule::attn_norm);
  if (local) {  // the fused qkv output lives on (v is a view of it); rope and the q reshape make
                // new tensors
    w.save("fused qkv output", per * (q + k + v), 0, core, "2N (na + 2ng) d / t");
    w.save("rope outputs", per * (q + k), 0, core, "2N (na + ng) d / t");
    if (m.qk_layernorm) {
      w.save("q norm input copy", m.num_attention_heads != m.num_query_groups ? per * q : 0, 0, 0,
             "2N na d / t");
      w.save("qk norm rstd", 4 * d.N * (m.num_attention_heads + m.num_query_groups) / d.t, 0, 0,
             "4N (na + ng) / t");
    }
    if (!w.problem.features.rope_fusion) {
      w.save("rope cos and sin", 8.0 * m.qk_head_dim * w.problem.seq_length / w.key.cp, 0, 0,
             "8 d s / C");
    }
  } else {
    w.save("q, k, v", w.attention_bytes() * d.N * (q + k + v) / d.t, 0, core,
           "2N (na + 2ng) d / t");
    if (m.qk_layernorm) w.save("qk norm input", per * (q + k), 0, 0, "2N (na + ng) d / t");
  }
  if (m.attention_output_gate)
    w.save("output gate and gated output", 2 * per * q, 0, 0, "4N na d / t");
  save_core(w, m, static_cast<double>(m.num_attention_heads) * m.v_head_dim);
}

void save_mla(SavedWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double heads = m.num_attention_heads, qk = m.qk_head_dim + m.qk_pos_emb_head_dim;
  save_norm(w, kAttentionNorm, mask(RecomputeModule::layernorm), OffloadModule::attn_norm);
  w.save("q LoRA output and norm", 4.0 * m.q_lora_rank * d.n, 0, 0, "4 n rq");
  w.save("kv LoRA output and norm", 2 * d.n * (2.0 * m.kv_lora_rank + m.qk_pos_emb_head_dim), 0, 0,
         "2n (2 rk + dr)");
  w.save("q, k, v", w.attention_bytes() * d.N * heads * (2 * qk + m.v_head_dim) / d.t,
         mask(RecomputeModule::mla_up_proj), mask(OffloadModule::core_attn),
         "2N na (2 (dq + dr) + dv) / t");
  if (!w.problem.features.transformer_engine) {
    w.save("rope cos and sin", 8.0 * m.qk_pos_emb_head_dim * w.problem.seq_length / w.key.cp,
           mask(RecomputeModule::mla_up_proj), 0, "8 dr s / C");
  }
  save_core(w, m, heads * m.v_head_dim);
}

void save_csa(SavedWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double heads = m.num_attention_heads, dv = m.v_head_dim;
  save_norm(w, kAttentionNorm, mask(RecomputeModule::layernorm), OffloadModule::attn_norm);
  w.save("q LoRA output and norm", 4.0 * m.q_lora_rank * d.n, 0, 0, "4 n rq");
  w.save("q", 2 * d.N * heads * dv / d.t, mask(RecomputeModule::mla_up_proj),
         mask(OffloadModule::core_attn), "2N na d / t");
  const double compressed = m.compress_ratio > 0 ? 2 + 2.0 / m.compress_ratio : 1;
  w.save("kv and compressed kv", 2 * d.N * dv * compressed, 0, mask(OffloadModule::core_attn),
         "2N d (1 + 2 + 2 / ratio)");
  save_core(w, m, heads * dv);
  w.save("o LoRA", 2 * d.N * m.o_groups * m.o_lora_rank / d.t, 0, 0, "2N go ro / t");
}

/// Gated delta net. The in-projection's output is copied apart (convolution input, gate) and freed;
/// the recurrence keeps what flash-linear-attention's chunk_gated_delta_rule saves (chunks of 64
/// tokens, states are recomputed in backward). Ref: megatron/core/ssm/gated_delta_net.py; fla
/// ops/gated_delta_rule/chunk.py, modules/l2norm.py.
void save_gdn(SavedWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double qk = static_cast<double>(m.linear_num_key_heads) * m.linear_key_head_dim;
  const double v = static_cast<double>(m.linear_num_value_heads) * m.linear_value_head_dim;
  const double expanded = static_cast<double>(m.linear_num_value_heads) * m.linear_key_head_dim;
  const double per = 2 * d.N / d.t, nv = m.linear_num_value_heads;
  constexpr auto norm_out = mask(RecomputeModule::gdn_norm_out);
  save_norm(w, kAttentionNorm, 0, OffloadModule::attn_norm);
  w.save("conv input", per * (2 * qk + v), 0, 0, "2N (2qk + v) / t");
  w.save("normalised q, k", per * 2 * qk, 0, 0, "4N qk / t");
  if (expanded > qk)
    w.save("q, k repeated to value heads", per * 2 * expanded, 0, 0, "4N nv dk / t");
  w.save("v", per * v, 0, 0, "2N v / t");
  w.save("gates and decay, fp32", 16 * d.N * nv / d.t, 0, 0, "16N nv / t");
  w.save("chunk inverse", per * 64 * nv, 0, 0, "2N 64 nv / t");
  w.save("scan output", per * v, 0, 0, "2N v / t");
  w.save("output gate", per * v, 0, 0, "2N v / t");
  w.save("normed scan output", per * v, norm_out, 0, "2N v / t");
  w.save("gated output", w.linear_input_bytes() * d.N * v / d.t, norm_out, 0, "2N v / t");
}

/// Mamba-2 through mamba_split_conv1d_scan_combined, which keeps its input and the ungated scan
/// output and recomputes convolution and chunk states in backward. Ref:
/// megatron/core/ssm/mamba_mixer.py; mamba_ssm/ops/triton/ssd_combined.py.
void save_mamba(SavedWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double inner = static_cast<double>(m.mamba_num_heads) * m.mamba_head_dim;
  const double state = 2.0 * m.mamba_num_groups * m.mamba_state_dim;
  const double per = 2 * d.N / d.t;
  save_norm(w, kMambaNorm, 0, OffloadModule::attn_norm);
  w.save("in proj output", per * (2 * inner + state + m.mamba_num_heads), 0, 0,
         "2N (2di + 2GS + H) / t");
  w.save("scan output", per * inner, 0, 0, "2N di / t");
  w.save("gated scan output", per * inner, 0, 0, "2N di / t");
  w.save("group norm output", w.linear_input_bytes() * d.N * inner / d.t, 0, 0, "2N di / t");
}

}  // namespace

void save_mixer(SavedWriter& w, const Mixer& m) {
  w.captured_by = mask(m.kind == MixerKind::mamba ? GraphModule::mamba : GraphModule::attn);
  switch (m.kind) {
    case MixerKind::none:
      return;
    case MixerKind::gqa:
      return save_gqa(w, m);
    case MixerKind::mla:
      return save_mla(w, m);
    case MixerKind::csa:
      return save_csa(w, m);
    case MixerKind::gdn:
    case MixerKind::kda:
      return save_gdn(w, m);
    case MixerKind::mamba:
      return save_mamba(w, m);
  }
}

}  // namespace moecast
