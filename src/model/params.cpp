#include "model/params.hpp"

namespace moecast {
namespace {

double d(int v) { return static_cast<double>(v); }

/// fc1 is gate and up projection when gated.
double fc1_width(const ModelSpec& m) { return m.gated_linear_unit ? 2.0 : 1.0; }

/// "GQA qkv", "GQA out proj", "qk norm". Sinks are one scalar per head and follow the heads.
BlockParams gqa_params(const ModelSpec& m, const Mixer& x) {
  const double h = d(m.hidden_size);
  const double q =
      d(x.num_attention_heads) * d(x.qk_head_dim) * (x.attention_output_gate ? 2.0 : 1.0);
  const double k = d(x.num_query_groups) * d(x.qk_head_dim);
  const double v = x.k_equals_v ? 0.0 : d(x.num_query_groups) * d(x.v_head_dim);
  BlockParams p;
  p.column_parallel = (h + (x.add_qkv_bias ? 1.0 : 0.0)) * (q + k + v);
  p.column_parallel += x.sinks ? d(x.num_attention_heads) : 0.0;
  p.row_parallel = d(x.num_attention_heads) * d(x.v_head_dim) * h;
  p.replicated = x.qk_layernorm ? 2.0 * d(x.qk_head_dim) : 0.0;
  p.replicated +=
      m.add_bias_linear ? h : 0.0;  // a row-parallel bias is added once, after the reduction
  return p;
}

/// DSA / CSA indexer: query up-projection from the q LoRA (or h), one key head, head weights, key
/// norm (scale and bias).
double indexer_params(const ModelSpec& m, const Mixer& x) {
  if (x.index_n_heads == 0 || !x.index_fresh) return 0.0;
  const double query_in = x.q_lora_rank > 0 ? d(x.q_lora_rank) : d(m.hidden_size);
  return query_in * d(x.index_n_heads) * d(x.index_head_dim) +
         d(m.hidden_size) * d(x.index_n_heads);
}

/// "MLA q_down, kv_down" are not divided by t; "MLA q_up, kv_up, out, norms"; "(q_lora None) q".
BlockParams mla_params(const ModelSpec& m, const Mixer& x) {
  const double h = d(m.hidden_size), heads = d(x.num_attention_heads);
  const double qk = d(x.qk_head_dim) + d(x.qk_pos_emb_head_dim);
  const double rq = d(x.q_lora_rank), rk = d(x.kv_lora_rank);
  BlockParams p;
  p.column_parallel =
      (rq > 0 ? rq : h) * heads * qk + rk * heads * (d(x.qk_head_dim) + d(x.v_head_dim));
  p.row_parallel = heads * d(x.v_head_dim) * h;
  p.replicated = h * rq + rq + h * (rk + d(x.qk_pos_emb_head_dim)) + rk;
  p.indexer = indexer_params(m, x);
  if (p.indexer > 0) p.indexer += h * d(x.index_head_dim) + 2.0 * d(x.index_head_dim);
  return p;
}

/// DeepSeek-V4: q LoRA, one KV head (whole on every rank), output LoRA in o_groups groups. The
/// compressors project h to two sets of (value, gate) rows at ratio 4 and to one at ratio 128
/// (Bridge flop_utils.py, dsv4_hybrid).
BlockParams csa_params(const ModelSpec& m, const Mixer& x) {
  const double h = d(m.hidden_size), heads = d(x.num_attention_heads), rq = d(x.q_lora_rank);
  const double dv = d(x.v_head_dim), di = d(x.index_head_dim);
  BlockParams p;
  p.column_parallel = rq * heads * d(x.qk_head_dim) + heads * dv * d(x.o_lora_rank);
  p.row_parallel = d(x.o_groups) * d(x.o_lora_rank) * h;
  p.replicated = h * rq + rq + h * dv + dv;
  if (x.compress_ratio == 4) p.indexer = 4.0 * h * dv + 4.0 * h * di + indexer_params(m, x);
  if (x.compress_ratio > 4) p.indexer = 2.0 * h * dv;
  return p;
}

/// Gated delta net: in_proj h (2qk + 2v + 2nv), causal conv over q, k, v, A and dt per value head,
/// gated norm, out_proj.
BlockParams gdn_params(const ModelSpec& m, const Mixer& x) {
  const double h = d(m.hidden_size), heads = d(x.linear_num_value_heads);
  const double qk = d(x.linear_num_key_heads) * d(x.linear_key_head_dim);
  const double v = heads * d(x.linear_value_head_dim);
  BlockParams p;
  p.column_parallel =
      h * (2 * qk + 2 * v + 2 * heads) + d(x.linear_conv_kernel_dim) * (2 * qk + v) + 2 * heads;
  p.row_parallel = v * h;
  p.replicated = d(x.linear_value_head_dim);
  return p;
}

/// Kimi delta attention: q, k, v, output gate and out projection of width P = n dh, low-rank decay
/// (h dh + dh P), beta h n, three convolutions, A per head, dt per channel, norm dh. The decay's
/// down projection is shared by all heads.
BlockParams kda_params(const ModelSpec& m, const Mixer& x) {
  const double h = d(m.hidden_size), n = d(x.linear_num_value_heads),
               dh = d(x.linear_value_head_dim);
  const double width = n * dh;
  BlockParams p;
  p.column_parallel =
      4 * h * width + dh * width + h * n + 3 * d(x.linear_conv_kernel_dim) * width + n + width;
  p.row_parallel = width * h;
  p.replicated = h * dh + dh;
  return p;
}

/// "Mamba-2 mixer": in_proj h (2di + 2GS + H), conv (di + 2GS) (kernel + bias), A, D, dt 3H, norm
/// di, out di h.
BlockParams mamba_params(const ModelSpec& m, const Mixer& x) {
  const double h = d(m.hidden_size), heads = d(x.mamba_num_heads);
  const double inner = heads * d(x.mamba_head_dim);
  const double states = 2.0 * d(x.mamba_num_groups) * d(x.mamba_state_dim);
  BlockParams p;
  p.column_parallel =
      h * (2 * inner + states + heads) + (inner + states) * (d(x.mamba_conv_kernel) + 1.0);
  p.column_parallel += 3 * heads + inner;
  p.row_parallel = inner * h;
  return p;
}

BlockParams mlp_params(const ModelSpec& m, int width) {
  const double h = d(m.hidden_size), f = d(width);
  BlockParams p;
  p.column_parallel = fc1_width(m) * f * (h + (m.add_bias_linear ? 1.0 : 0.0));
  p.row_parallel = f * h;
  p.replicated = m.add_bias_linear ? h : 0.0;
  return p;
}

}  // namespace

BlockParams& BlockParams::operator+=(const BlockParams& o) {
  column_parallel += o.column_parallel;
  row_parallel += o.row_parallel;
  replicated += o.replicated;
  indexer += o.indexer;
  return *this;
}

BlockParams mixer_params(const ModelSpec& m, const Mixer& mixer) {
  switch (mixer.kind) {
    case MixerKind::none:
      return {};
    case MixerKind::gqa:
      return gqa_params(m, mixer);
    case MixerKind::mla:
      return mla_params(m, mixer);
    case MixerKind::csa:
      return csa_params(m, mixer);
    case MixerKind::gdn:
      return gdn_params(m, mixer);
    case MixerKind::kda:
      return kda_params(m, mixer);
    case MixerKind::mamba:
      return mamba_params(m, mixer);
  }
  return {};
}

BlockParams dense_mlp_params(const ModelSpec& m) { return mlp_params(m, m.ffn_hidden_size); }

MoeParams moe_params(const ModelSpec& m) {
  const MoeSpec& moe = m.moe;
  const double h = d(m.hidden_size), fe = d(moe.moe_ffn_hidden_size), u = fc1_width(m);
  const double width = moe.moe_latent_size > 0 ? d(moe.moe_latent_size) : h;
  MoeParams p;
  p.router = h * d(moe.num_moe_experts) + (moe.add_bias ? d(moe.num_moe_experts) : 0.0);
  p.latent = 2.0 * h * d(moe.moe_latent_size);
  if (moe.moe_shared_expert_intermediate_size > 0) {
    p.shared = mlp_params(m, moe.moe_shared_expert_intermediate_size);
    p.shared.replicated += moe.moe_shared_expert_gate ? h : 0.0;
  }
  p.expert_fc1 = u * fe * (width + (moe.add_bias ? 1.0 : 0.0));
  p.expert_fc2 = fe * width + (moe.add_bias ? width : 0.0);
  return p;
}

double norm_params(const ModelSpec& m) { return d(m.hidden_size) * (m.layernorm ? 2.0 : 1.0); }

double layer_norm_params(const ModelSpec& m, const LayerKind& layer) {
  const int parts = (layer.mixer != 0 ? 1 : 0) + (layer.ffn != FfnKind::none ? 1 : 0);
  return parts * norm_params(m);
}

BlockParams mtp_extra_params(const ModelSpec& m) {
  BlockParams p;
  p.column_parallel = 2.0 * d(m.hidden_size) * d(m.hidden_size);
  p.replicated = 3.0 * norm_params(m);
  return p;
}

LayerParams layer_params(const ModelSpec& m, const LayerKind& layer) {
  const double fixed =
      layer_norm_params(m, layer) + mixer_params(m, m.mixers.at(layer.mixer)).counted();
  if (layer.ffn == FfnKind::none) return {fixed, fixed};
  if (layer.ffn == FfnKind::dense) {
    const double dense = fixed + dense_mlp_params(m).counted();
    return {dense, dense};
  }
  const MoeParams p = moe_params(m);
  const double common = fixed + p.router + p.latent + p.shared.counted();
  return {common + d(m.moe.num_moe_experts) * p.one_expert(),
          common + d(m.moe.moe_router_topk) * p.one_expert()};
}

double embedding_params(const ModelSpec& m) { return d(m.vocab_size) * d(m.hidden_size); }

ParamCount count_params(const ModelSpec& m) {
  ParamCount count;
  for (const LayerKind& layer : m.layers) {
    const LayerParams p = layer_params(m, layer);
    count.total += p.total;
    count.active += p.active;
  }
  const double ends =
      embedding_params(m) * (m.untie_embeddings_and_output_weights ? 2.0 : 1.0) + norm_params(m);
  count.total += ends;
  count.active += ends;
  count.active_without_input_embedding = count.active - embedding_params(m);
  double depth = mtp_extra_params(m).counted();
  for (const LayerKind& layer : m.mtp_pattern) depth += layer_params(m, layer).total;
  const bool one_set = m.mtp_use_repeated_layer && m.mtp_num_layers > 0;
  count.mtp = depth * (one_set ? 1 : m.mtp_num_layers);
  return count;
}

}  // namespace moecast
