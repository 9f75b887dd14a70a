// Linear-time mixers: gated delta net (Qwen3-Next, Qwen3.5), Kimi delta attention, Mamba-2
// (Nemotron). Projections are GEMMs; convolution, gating and the chunked scan are memory traffic
// (two passes over the scan's operands forward, five backward) at the calibration's scan fraction
// of HBM. Ref: Megatron core/ssm/mamba_mixer.py, gated_delta_net.py.
#include "estimate/layer_ops.hpp"

namespace moecast {
namespace {

constexpr std::uint8_t kGdnGraph =
    mask(GraphModule::attn);  // Megatron counts a gated delta net as attention
constexpr std::uint8_t kMambaGraph = mask(GraphModule::mamba);

void write_conv_and_scan(OpWriter& w, double conv_width, double scan_elements, std::uint8_t graph) {
  const double N = w.dims.N;
  w.begin(Part::attention, 0, graph);
  w.elementwise("causal conv", 4 * N * conv_width, 8 * N * conv_width, 2);
  w.forward("scan", OpClass::attention, w.prices.scan(2 * N * scan_elements * 2), 6);
  w.backward("scan", OpClass::attention, w.prices.scan(2 * N * scan_elements * 5), 8);
}

void write_gated_output(OpWriter& w, double width, std::uint16_t recompute, std::uint8_t graph) {
  const double N = w.dims.N;
  w.begin(Part::attention, recompute, graph);
  w.elementwise("gated norm", 6 * N * width, 12 * N * width, 2);
}

void write_gdn(OpWriter& w, const Mixer& m, bool kimi) {
  const Dims& d = w.dims;
  const double qk = static_cast<double>(m.linear_num_key_heads) * m.linear_key_head_dim;
  const double v = static_cast<double>(m.linear_num_value_heads) * m.linear_value_head_dim;
  const double beta = 2.0 * m.linear_num_value_heads;
  w.begin(Part::attention, 0, kGdnGraph);
  w.norm(d.h, d.n);
  w.linear("gdn in proj", d.N, 2 * qk + 2 * v + beta + (kimi ? qk : 0), d.h,
           OpWriter::Split::column);
  const double expanded = static_cast<double>(m.linear_num_value_heads) *
                          m.linear_key_head_dim;  // keys repeated to value heads
  write_conv_and_scan(w, (2 * qk + v) / d.t, (2 * expanded + 2 * v) / d.t, kGdnGraph);
  write_gated_output(w, v / d.t, mask(RecomputeModule::gdn_norm_out), kGdnGraph);
  w.begin(Part::attention, 0, kGdnGraph);
  w.linear("gdn out proj", d.N, d.h, v, OpWriter::Split::row);
  w.residual();
}

void write_mamba(OpWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double inner = static_cast<double>(m.mamba_num_heads) * m.mamba_head_dim;
  const double state = 2.0 * m.mamba_num_groups * m.mamba_state_dim;
  w.begin(Part::attention, 0, kMambaGraph);
  w.norm(d.h, d.n);
  w.linear("mamba in proj", d.N, 2 * inner + state + m.mamba_num_heads, d.h,
           OpWriter::Split::column);
  write_conv_and_scan(w, (inner + state) / d.t, (2 * inner + state + m.mamba_num_heads) / d.t,
                      kMambaGraph);
  write_gated_output(w, inner / d.t, 0, kMambaGraph);
  w.begin(Part::attention, 0, kMambaGraph);
  w.linear("mamba out proj", d.N, d.h, inner, OpWriter::Split::row);
  w.residual();
}

}  // namespace

void write_linear_mixer(OpWriter& w, const Mixer& m) {
  if (m.kind == MixerKind::mamba) {
    write_mamba(w, m);
  } else {
    write_gdn(w, m, m.kind == MixerKind::kda);
  }
}

}  // namespace moecast
