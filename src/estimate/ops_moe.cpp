// Dense MLP and the MoE block: router, dispatch, experts, combine, shared experts.
// Pipelines and sync points of the dispatchers: Megatron core/transformer/moe/token_dispatcher.py,
// fused_a2a.py; experts: TransformerEngine GroupedLinear (multi-stream cuBLAS, one GEMM per expert)
// or the fused grouped MLP.
#include <algorithm>
#include <cstdint>

#include "estimate/layer_ops.hpp"

namespace moecast {
namespace {

constexpr auto kMoe = mask(RecomputeModule::moe);
constexpr auto kMoeAct = mask(RecomputeModule::moe_act);
constexpr auto kMoeGraph = mask(GraphModule::moe);
constexpr auto kRouterGraph = static_cast<std::uint8_t>(mask(GraphModule::moe_router) | kMoeGraph);
constexpr auto kPreprocessGraph =
    static_cast<std::uint8_t>(mask(GraphModule::moe_preprocess) | kMoeGraph);

struct MoeSizes {
  double send_rows = 0;  ///< n * topk
  double recv_rows = 0;  ///< rows that arrive before the local permute
  double rows = 0;       ///< R on the busiest rank, what the experts compute
  double width = 0;      ///< hx
};

MoeSizes sizes(const OpWriter& w, const DispatchVolume& v) {
  const Dims& d = w.dims;
  MoeSizes s;
  s.send_rows = d.n * w.problem.model.moe.moe_router_topk;
  s.rows = d.rows;
  s.width = d.expert_width;
  const bool copies_per_rank =
      w.key.dispatcher == Dispatcher::deepep || w.key.dispatcher == Dispatcher::hybridep;
  s.recv_rows = copies_per_rank ? d.n * v.distinct_ranks : s.rows;
  return s;
}

DispatchShape dispatch_shape(const OpWriter& w, bool combine) {
  const MoeSpec& moe = w.problem.model.moe;
  DispatchShape s;
  s.tokens = w.dims.n;
  // probabilities travel with the tokens (fp32 per copy); combine carries none
  s.row_bytes = 2 * w.dims.expert_width + (combine ? 0 : 4);
  s.topk = moe.moe_router_topk;
  s.num_experts = moe.num_moe_experts;
  s.num_sms = w.key.dispatcher_num_sms;
  const HybridEp& h = w.problem.hybridep;
  s.chunk_tokens = combine ? h.combine_chunk_tokens : h.dispatch_chunk_tokens;
  s.imbalance = w.dims.imbalance;
  return s;
}

/// Thread blocks of HybridEP's permute and unpermute; others' kernels have the whole GPU.
struct BlockCounts {
  int permute = 0, unpermute = 0;
};
BlockCounts block_counts(const OpWriter& w) {
  if (w.key.dispatcher != Dispatcher::hybridep) return {};
  return {w.problem.hybridep.permute_blocks, w.problem.hybridep.unpermute_blocks};
}

bool dispatch_syncs(const OpWriter& w) {
  if (w.problem.features.static_dispatch || w.problem.run.capacity_factor > 0) return false;
  return w.spans.etp_ep.ranks > 1 || w.dims.local_experts > 1;
}

void write_router(OpWriter& w) {
  const Dims& d = w.dims;
  const double E = w.problem.model.moe.num_moe_experts;
  const bool fused = w.problem.features.router_fusion;
  w.begin(Part::attention, kMoe, kRouterGraph);
  const Seconds gemm = w.prices.fp32_gemm({d.n, E, d.h});
  const double launches = fused ? 6 : 20;  // softmax, top-k, scatter, auxiliary loss
  w.forward("router", OpClass::dense_gemm, gemm, 2);
  w.forward(
      "router top-k", OpClass::memory_bound,
      w.prices.elementwise((fused ? 20 : 45) * d.n * E) + w.prices.small_kernels(fused ? 3 : 15),
      launches);
  w.backward(
      "router top-k", OpClass::memory_bound,
      w.prices.elementwise((fused ? 12 : 30) * d.n * E) + w.prices.small_kernels(fused ? 2 : 10),
      launches);
  w.backward("router", OpClass::dense_gemm, gemm * 2, 3);
}

void write_latent(OpWriter& w, const char* name, double n, double k) {
  if (w.problem.model.moe.moe_latent_size == 0) return;
  w.begin(Part::attention, kMoe, kRouterGraph);
  w.linear(name, w.dims.n, n, k, OpWriter::Split::none);
}

/// Permute before the all-to-all (alltoall, allgather) belongs to the preprocess; DeepEP and
/// HybridEP permute what they received.
void write_dispatch(OpWriter& w, const MoeSizes& s) {
  const Dims& d = w.dims;
  const bool fused = w.problem.features.permute_fusion;
  const double row = 2 * s.width;
  const double collective = w.problem.profile.calibration.host_collective_launches;
  const bool a2a = w.key.dispatcher == Dispatcher::alltoall;
  const bool sync = dispatch_syncs(w);
  const Seconds send =
      w.prices.dispatch(w.key.dispatcher, dispatch_shape(w, false), w.spans.etp_ep, false);
  const Seconds send_backward =
      w.prices.dispatch(w.key.dispatcher, dispatch_shape(w, true), w.spans.etp_ep, true);
  const double small = fused ? 3 : 10;

  w.begin(Part::attention, kMoe, kPreprocessGraph);
  if (a2a) {
    w.forward("permute", OpClass::permute, w.prices.permute(row * (d.n + s.send_rows), fused),
              small);
    w.backward("permute", OpClass::permute, w.prices.unpermute(row * (d.n + s.send_rows), fused),
               fused ? 2 : 5);
    if (w.spans.etp_ep.ranks > 1) {  // every rank learns what the others send it
      const double counts = 8.0 * w.spans.etp_ep.ranks * w.problem.model.moe.num_moe_experts;
      w.forward("dispatch metadata", OpClass::ep_comm,
                w.prices.collective(Collective::all_gather, counts, w.spans.etp_ep), collective);
    }
  } else {
    w.forward("dispatch metadata", OpClass::permute,
              w.prices.elementwise(8 * d.n * w.problem.model.moe.num_moe_experts) +
                  w.prices.small_kernels(3),
              4);
  }
  w.begin(Part::dispatch, kMoe, kMoeGraph);
  w.forward("dispatch", OpClass::ep_comm, send, a2a ? 2 * collective : collective + 2, sync);
  w.backward("dispatch", OpClass::ep_comm, send_backward, a2a ? 2 * collective : collective);
  w.begin(Part::experts, kMoe, kMoeGraph);
  if (!a2a || w.dims.local_experts > 1) {  // sort by local expert / permute the received rows
    const char* name = a2a ? "sort by expert" : "permute";
    const double bytes = row * (s.recv_rows + s.rows);
    const BlockCounts blocks = block_counts(w);
    w.forward(name, OpClass::permute, w.prices.permute(bytes, a2a || fused, blocks.permute),
              a2a ? 2 : small);
    w.backward(name, OpClass::permute, w.prices.permute(bytes, a2a || fused, blocks.unpermute), 2);
  }
}

void write_grouped(OpWriter& w, const char* name, const MoeSizes& s, double n, double k,
                   std::uint16_t recompute) {
  const Dims& d = w.dims;
  const Features& f = w.problem.features;
  const Calibration& c = w.problem.profile.calibration;
  const bool single = f.fused_grouped_mlp || f.grouped_mm;
  const Pipe pipe = pipe_of(w.key.precision);
  const double experts = std::max(1.0, d.local_experts);
  const GemmShape one{s.rows / experts, n, k};
  // multi-stream back end: one cuBLAS call per expert, less Python than a module, and quantised
  // recipes prepare every expert's rows apart; SequentialMLP runs a Python module per expert
  const double tensors = single ? 1 : experts;
  const double launches = single ? c.host_linear_launches
                          : f.sequential_experts
                              ? (c.host_linear_launches + 2) * experts
                              : c.host_linear_launches + c.host_expert_launches * experts;
  w.begin(Part::experts, recompute, kMoeGraph);
  if (w.low_precision()) {
    const double prepare = c.host_quantize_launches * quantize_kernels(w.key.precision) * tensors;
    w.forward("quantize", OpClass::quantize,
              w.prices.quantize(w.key.precision, s.rows * k * w.quantize_bytes(), tensors),
              prepare);
    w.backward("quantize", OpClass::quantize,
               w.prices.quantize(w.key.precision, s.rows * n * w.quantize_bytes(), tensors),
               prepare);
  }
  w.forward(name, OpClass::grouped_gemm,
            w.prices.grouped_gemm(pipe, experts, one, Pass::forward, 0, single), launches);
  w.backward(name, OpClass::grouped_gemm,
             w.prices.grouped_gemm(pipe, experts, one, Pass::dgrad, 0, single), launches);
  const double acc = f.grouped_mm ? 0 : w.accumulate_bytes();
  w.backward(name, OpClass::grouped_gemm,
             w.prices.grouped_gemm(pipe, experts, one, Pass::wgrad, acc, single), launches, true);
  if (f.grouped_mm) {  // BF16 wgrad, then a separate add into the fp32 gradient
    w.backward("wgrad accumulate", OpClass::memory_bound, w.prices.adam(10 * experts * n * k), 1,
               true);
  }
}

/// Rows are gathered over expert TP before the experts and scattered back after them; backward does
/// the other of the two.
void write_expert_tp(OpWriter& w, const MoeSizes& s, bool before) {
  if (w.key.etp <= 1) return;
  const double bytes = s.rows * 2 * s.width;
  const double launches = w.problem.profile.calibration.host_collective_launches;
  const Seconds gather = w.prices.collective(Collective::all_gather, bytes, w.spans.etp);
  const Seconds scatter = w.prices.collective(Collective::reduce_scatter, bytes, w.spans.etp);
  const char *gathers = "etp all-gather", *scatters = "etp reduce-scatter";
  w.begin(Part::experts, kMoe, kMoeGraph);
  w.forward(before ? gathers : scatters, OpClass::tp_comm, before ? gather : scatter, launches);
  w.backward(before ? scatters : gathers, OpClass::tp_comm, before ? scatter : gather, launches);
}

void write_experts(OpWriter& w, const MoeSizes& s) {
  const Dims& d = w.dims;
  write_expert_tp(w, s, true);
  write_grouped(w, "expert fc1", s, d.glu * d.expert_ffn, s.width, kMoe);
  w.begin(Part::experts, kMoe | kMoeAct, kMoeGraph);
  const double f = d.expert_ffn * s.rows;
  // activation with probabilities: the fused grouped MLP does it in the GEMM's epilogue
  const double traffic = w.problem.features.fused_grouped_mlp ? 0.5 : 1.0;
  w.activation("moe act", traffic * 2 * (d.glu + 1) * f, traffic * 2 * (2 * d.glu + 1) * f, 2);
  write_grouped(w, "expert fc2", s, s.width, d.expert_ffn, kMoe);
  write_expert_tp(w, s, false);
}

void write_combine(OpWriter& w, const MoeSizes& s) {
  const Dims& d = w.dims;
  const bool fused = w.problem.features.permute_fusion;
  const bool a2a = w.key.dispatcher == Dispatcher::alltoall;
  const double row = 2 * s.width;
  const double collective = w.problem.profile.calibration.host_collective_launches;
  w.begin(Part::experts, kMoe, kMoeGraph);
  if (!a2a || d.local_experts > 1) {
    const char* name = a2a ? "unsort" : "unpermute";
    const double bytes = row * (s.recv_rows + s.rows);
    const BlockCounts blocks = block_counts(w);
    w.forward(name, OpClass::permute, w.prices.permute(bytes, a2a || fused, blocks.unpermute),
              a2a ? 2 : (fused ? 2 : 5));
    w.backward(name, OpClass::permute, w.prices.permute(bytes, a2a || fused, blocks.permute), 2);
  }
  w.begin(Part::combine, kMoe, kMoeGraph);
  const Seconds back =
      w.prices.dispatch(w.key.dispatcher, dispatch_shape(w, true), w.spans.etp_ep, true);
  if (a2a) {
    w.backward("unpermute", OpClass::permute, w.prices.permute(row * (d.n + s.send_rows), fused),
               fused ? 2 : 5);
  }
  w.forward("combine", OpClass::ep_comm, back, collective);
  w.backward("combine", OpClass::ep_comm,
             w.prices.dispatch(w.key.dispatcher, dispatch_shape(w, true), w.spans.etp_ep, false),
             collective);
  if (a2a) {
    w.forward("unpermute", OpClass::permute, w.prices.unpermute(row * (d.n + s.send_rows), fused),
              fused ? 2 : 6);
  }
}

void write_shared(OpWriter& w) {
  const MoeSpec& moe = w.problem.model.moe;
  if (moe.moe_shared_expert_intermediate_size == 0) return;
  const Dims& d = w.dims;
  const double sh = moe.moe_shared_expert_intermediate_size;
  w.begin(Part::attention, mask(RecomputeModule::shared_experts) | kMoe, kRouterGraph, true);
  w.linear("shared fc1", d.N, d.glu * sh, d.h, OpWriter::Split::column);
  w.activation("shared act", 2 * (d.glu + 1) * sh * d.N / d.t, 2 * (2 * d.glu + 1) * sh * d.N / d.t,
               1);
  w.linear("shared fc2", d.N, d.h, sh, OpWriter::Split::row);
  w.elementwise("shared add", 6 * d.h * d.n, 2 * d.h * d.n, moe.moe_shared_expert_gate ? 4 : 1);
}

}  // namespace

void write_dense_mlp(OpWriter& w) {
  const Dims& d = w.dims;
  const double f = w.problem.model.ffn_hidden_size;
  constexpr auto graph = mask(GraphModule::mlp);
  w.begin(Part::experts, 0, graph);
  w.norm(d.h, d.n);
  w.begin(Part::experts, mask(RecomputeModule::mlp), graph);
  w.linear("mlp fc1", d.N, d.glu * f, d.h, OpWriter::Split::column);
  w.activation("mlp act", 2 * (d.glu + 1) * f * d.N / d.t, 2 * (2 * d.glu + 1) * f * d.N / d.t, 1);
  w.linear("mlp fc2", d.N, d.h, f, OpWriter::Split::row);
  w.begin(Part::experts, 0, graph);
  w.residual();
}

void write_moe(OpWriter& w) {
  const DispatchVolume volume =
      dispatch_volume(w.key.dispatcher, dispatch_shape(w, false), w.spans.etp_ep);
  const MoeSizes s = sizes(w, volume);
  w.begin(Part::attention, mask(RecomputeModule::layernorm), kRouterGraph);
  w.norm(w.dims.h, w.dims.n);
  write_shared(w);
  write_router(w);
  write_latent(w, "latent down", s.width, w.dims.h);
  write_dispatch(w, s);
  write_experts(w, s);
  write_combine(w, s);
  write_latent(w, "latent up", w.dims.h, s.width);
  w.begin(Part::combine, 0, 0);
  w.residual();
}

}  // namespace moecast
