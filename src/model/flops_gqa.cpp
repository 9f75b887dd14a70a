/// Grouped-query attention, full or in a sliding window (flop_utils.py, attention of the non-hybrid
/// path; the hybrid path's 4 h p (h + h n_g/n_a) + 2 h p s per forward token is the same
/// expression).
#include "model/flops.hpp"

namespace moecast {

double average_context(int window, int seq_length) {
  const double s = seq_length, w = window;
  if (window <= 0 || w >= s) return s / 2.0;
  return w - w * (w - 1.0) / (2.0 * s);
}

double gqa_flops(const ModelSpec& m, const Mixer& x, int seq_length) {
  const double h = m.hidden_size;
  const double q = static_cast<double>(x.num_attention_heads) * x.qk_head_dim;
  const double k = static_cast<double>(x.num_query_groups) * x.qk_head_dim;
  const double v = x.k_equals_v ? 0.0 : static_cast<double>(x.num_query_groups) * x.v_head_dim;
  const double out = static_cast<double>(x.num_attention_heads) * x.v_head_dim;
  const double projections = h * (q * (x.attention_output_gate ? 2.0 : 1.0) + k + v + out);
  return 6.0 * (projections + (q + out) * average_context(x.window, seq_length));
}

}  // namespace moecast
