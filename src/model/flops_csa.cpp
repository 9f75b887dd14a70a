/// DeepSeek-V4 compressed sparse attention: a window of raw tokens plus compressed ones (ratio 4:
/// indexer picks top-k; ratio 128: all). Ref: flop_utils.py, experimental_attention_variant
/// "dsv4_hybrid".
#include <algorithm>

#include "model/flops.hpp"

namespace moecast {
namespace {

double csa_projections(const ModelSpec& m, const Mixer& x) {
  const double h = m.hidden_size, heads = x.num_attention_heads, rq = x.q_lora_rank;
  const double dv = x.v_head_dim, ro = x.o_lora_rank;
  const double q = rq * (h + heads * x.qk_head_dim + 1.0);
  return q + h * dv + dv + heads * dv * ro + x.o_groups * ro * h;
}

}  // namespace

double csa_flops(const ModelSpec& m, const Mixer& x, int seq_length) {
  const double h = m.hidden_size, heads = x.num_attention_heads, dv = x.v_head_dim, s = seq_length;
  double elements = csa_projections(m, x) + heads * x.window * dv * 2.0;
  if (x.compress_ratio == 4) {
    const double ni = x.index_n_heads, di = x.index_head_dim;
    const double chosen = std::min(x.index_topk, seq_length / 4);
    const double attended = chosen * (1.0 - 4.0 * chosen / (2.0 * s));
    elements += heads * attended * dv * 2.0;
    elements += h * 2.0 * dv * 2.0 + h * 2.0 * di * 2.0;  // compressors of keys and of index keys
    elements += x.q_lora_rank * ni * di + h * ni;         // index queries and head weights
    elements += s * ni * di / 4.0;                        // index scores over all compressed tokens
  } else if (x.compress_ratio > 4) {
    elements += h * dv * 2.0 + s * heads * dv / x.compress_ratio;
  }
  return 6.0 * elements;
}

}  // namespace moecast
