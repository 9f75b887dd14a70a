/// Multi-latent attention (DeepSeek-V2/V3, Kimi-K2) and its sparse form with a lightning indexer
/// (DSA: DeepSeek-V3.2, GLM-5). Ref: flop_utils.py, multi_latent_attention and
/// experimental_attention_variant "dsa".
#include "model/flops.hpp"

namespace moecast {
namespace {

double width(const Mixer& x) { return static_cast<double>(x.qk_head_dim) + x.qk_pos_emb_head_dim; }

/// Weights met by a token; the "+ 1" stands for the LoRA norms.
double mla_projections(const ModelSpec& m, const Mixer& x) {
  const double h = m.hidden_size, heads = x.num_attention_heads, rq = x.q_lora_rank,
               rk = x.kv_lora_rank;
  const double q = rq > 0 ? rq * (h + heads * width(x) + 1.0) : h * heads * width(x);
  const double kv = rk * (h + heads * (static_cast<double>(x.qk_head_dim) + x.v_head_dim) + 1.0);
  return q + kv + h * x.qk_pos_emb_head_dim + heads * x.v_head_dim * h;
}

/// Indexer of a layer that computes a fresh top-k. Untrained (loss coefficient 0, Bridge's default)
/// it runs forward only, 2 FLOPs per weight; trained on the sparse loss 4, and its scores are
/// compared with the attention's own (the teacher).
double indexer(const ModelSpec& m, const Mixer& x, double dense_context, double sparse_context) {
  if (!x.index_fresh) return 0.0;
  const double h = m.hidden_size, ni = x.index_n_heads, di = x.index_head_dim;
  const double query_in = x.q_lora_rank > 0 ? x.q_lora_rank : m.hidden_size;
  const double weights = query_in * ni * di + h * di + h * ni;
  const double scores = 2.0 * dense_context * ni * (di + 1.0);
  if (!x.index_trained) return 2.0 * weights + scores;
  const double teacher =
      2.0 * sparse_context * x.num_attention_heads * (x.kv_lora_rank + x.qk_pos_emb_head_dim);
  return 4.0 * weights + scores + 4.0 * sparse_context * ni * (di + 1.0) + teacher;
}

}  // namespace

double mla_flops(const ModelSpec& m, const Mixer& x, int seq_length) {
  const double s = seq_length, heads = x.num_attention_heads;
  if (x.index_topk <= 0) {
    return 6.0 * (mla_projections(m, x) + heads * (width(x) + x.v_head_dim) * s / 2.0);
  }
  const double dense = (s + 1.0) / 2.0;
  const double k = x.index_topk;
  const double sparse = s <= k ? dense : k - k * (k - 1.0) / (2.0 * s);
  // absorbed form: scores over kv_lora_rank + rope, values over kv_lora_rank
  const double core = sparse * heads * (2.0 * x.kv_lora_rank + x.qk_pos_emb_head_dim);
  return 6.0 * (mla_projections(m, x) + core) + indexer(m, x, dense, sparse);
}

}  // namespace moecast
