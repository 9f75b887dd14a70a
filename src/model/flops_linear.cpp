/// Linear attention: gated delta net (Qwen3-Next, Qwen3.5), Kimi delta attention, Mamba-2. No term
/// grows with the sequence. Ref: flop_utils.py, experimental_attention_variant "gdn",
/// kimi_kda_layers, and mamba_layer_flops of the hybrid path.
#include "model/flops.hpp"

namespace moecast {

double gdn_flops(const ModelSpec& m, const Mixer& x) {
  const double h = m.hidden_size, heads = x.linear_num_value_heads, dv = x.linear_value_head_dim;
  const double qk = static_cast<double>(x.linear_key_head_dim) * x.linear_num_key_heads;
  const double v = dv * heads;
  const double in_proj = h * (2 * qk + 2 * v + 2 * heads);
  return 6.0 * (in_proj + x.linear_conv_kernel_dim * (2 * qk + v) + heads * dv * dv * 4.0 + h * v);
}

double kda_flops(const ModelSpec& m, const Mixer& x) {
  const double h = m.hidden_size, heads = x.linear_num_value_heads, dh = x.linear_value_head_dim;
  const double p = heads * dh;
  const double projections = 5 * h * p + h * heads + h * dh + dh * p;
  return 6.0 * (projections + 3.0 * x.linear_conv_kernel_dim * p + 4.0 * heads * dh * dh);
}

/// Bridge takes an inner width of 2h whatever heads x head_dim is: Nemotron-3 Nano (4096 inner, h
/// 2688) is over-counted there, and so here, because reported TFLOP/s divide by it.
double mamba_flops(const ModelSpec& m, const Mixer& x) {
  const double h = m.hidden_size, inner = 2.0 * h, state = x.mamba_state_dim;
  const double in_proj =
      2.0 * h * (2 * inner + 2.0 * x.mamba_num_groups * state + x.mamba_num_heads);
  return 3.0 * (in_proj + 7.0 * inner * state + 2.0 * inner * h);
}

}  // namespace moecast
