#include "estimate/memory_peak.hpp"

#include <algorithm>

namespace moecast {
namespace {

struct Moment {
  double stored = 0, transient = 0;
  const char* name = "forward";
  const char* formula = "2hn";
  [[nodiscard]] double bytes() const { return stored + transient; }
};
void consider(Moment& best, const Moment& other) {
  if (other.bytes() > best.bytes()) best = other;
}

}  // namespace

double reserved_bytes(const Problem& p, const Layout& l, double allocated) {
  return allocated * (1 + p.fragmentation) + outside_allocator_terms(p, l).total();
}

LayoutMemory::LayoutMemory(const Problem& p, const Layout& l, const ShardTables& shard,
                           const MeshTables& mesh)
    : p_(p),
      l_(l),
      shard_(shard),
      mesh_(mesh),
      full_(l.recompute_granularity == RecomputeGranularity::full),
      layered_(full_ || l.cpu_offloading_num_layers > 0),
      recompute_(selective_modules(l)),
      graph_(captured_modules(l)),
      dispatcher_(dispatcher_terms(p, l, shard.dims).total()) {
  for (std::size_t i = 0; i < shard.classes.size(); ++i) {
    const ClassTable& c = shard.classes[i];
    const ClassUnder& u = c.under(recompute_, l.offload_modules.bits);
    LayerBytes& b = selective_[i];
    b.offloaded = u.offloadable * l.offload_fraction;
    b.stored = u.stored - b.offloaded;
    b.rebuild = rebuilt_selectively(c.memory);
    if (graph_ != 0) b.captured = c.memory.captured(recompute_, graph_);
    if (!full_) continue;
    LayerBytes& f = recomputed_[i];
    f.stored = c.memory.input;
    f.rebuild = c.memory.stored(0) - c.memory.attributes;
    if (l.recompute_method == RecomputeMethod::uniform && l.recompute_num_layers > 1) {
      f.stored /= l.recompute_num_layers;
      f.rebuild *= l.recompute_num_layers;
    }
  }
}

/// Transient of selective recomputation in one layer's backward: the whole MoE block returns with
/// its input's gradient; outputs that were discarded return beside their copies.
double LayoutMemory::rebuilt_selectively(const LayerMemory& m) const {
  const auto has = [&](RecomputeModule module) { return (recompute_ & mask(module)) != 0; };
  double sum = 0;
  if (has(RecomputeModule::moe) && m.leftover > 0)
    sum += m.stored(0) - m.stored(mask(RecomputeModule::moe)) + m.input;
  if (has(RecomputeModule::moe_act)) sum += m.refill_moe_act;
  if (has(RecomputeModule::layernorm)) sum += m.refill_norms;
  return sum;
}

/// The dispatcher's attributes, and behind recomputed MoE blocks the input and its gradient that
/// the held probabilities keep alive until the block runs again (bench/memory_probe).
double LayoutMemory::between_steps(const StageCounts& stage) const {
  double share = leaves_graph(0) ? 1 : 0;  // of the chunk's layers that are recomputed
  if (full_ && l_.recompute_method == RecomputeMethod::block && !stage.order.empty())
    share = std::min(1.0, l_.recompute_num_layers / static_cast<double>(stage.order.size()));
  double sum = 0;
  for (std::size_t c = 0; c < stage.layers.size(); ++c) {
    const LayerMemory& m = shard_.classes[c].memory;
    sum += stage.layers[c] * (m.attributes + share * m.leftover);
  }
  return sum;
}
bool LayoutMemory::leaves_graph(std::size_t index) const {
  return full_ ? recomputed_whole(index) : (recompute_ & mask(RecomputeModule::moe)) != 0;
}
bool LayoutMemory::recomputed_whole(std::size_t index) const {
  return full_ && (l_.recompute_method != RecomputeMethod::block ||
                   static_cast<int>(index) < l_.recompute_num_layers);
}

/// Layer `index` of a chunk: uniform recomputes all, block the first recompute_num_layers of each
/// chunk.
LayerBytes LayoutMemory::layer(const StageCounts& stage, std::size_t index) const {
  const auto cls = static_cast<std::size_t>(stage.order[index]);
  LayerBytes b = recomputed_whole(index) ? recomputed_[cls] : selective_[cls];
  if (static_cast<int>(index) < l_.cpu_offloading_num_layers) {
    b.offloaded += b.stored;
    b.stored = 0;
  }
  return b;
}

/// MTP keeps its concatenated input, norms and projection per depth.
double LayoutMemory::mtp_inputs(const StageCounts& stage) const {
  return stage.mtp_depths * (8 + 4) * shard_.dims.h * shard_.dims.n;
}

double LayoutMemory::chunk(const StageCounts& stage) const {
  double sum = mtp_inputs(stage);
  if (layered_) {
    for (std::size_t i = 0; i < stage.order.size(); ++i) sum += layer(stage, i).stored;
  } else {
    for (std::size_t c = 0; c < stage.layers.size(); ++c)
      sum += stage.layers[c] * selective_[c].stored;
  }
  return sum;
}

double LayoutMemory::chunk_offloaded(const StageCounts& stage) const {
  double sum = 0;
  for (std::size_t i = 0; i < stage.order.size(); ++i) sum += layer(stage, i).offloaded;
  return sum;
}

/// Activations of a chunk that graph pools hold from capture on.
double LayoutMemory::captured(const StageCounts& stage) const {
  double sum = 0;
  for (std::size_t c = 0; c < stage.layers.size(); ++c)
    sum += stage.layers[c] * selective_[c].captured;
  return sum;
}

/// Static outputs of a chunk's graphs that eager execution would not keep: alltoall's permuted rows
/// wait in their buffer for the exchange (memory.md section 7).
double LayoutMemory::graph_buffers(const StageCounts& stage) const {
  if (graph_ == 0 || (graph_ & mask(GraphModule::moe_preprocess)) == 0 ||
      l_.dispatcher != Dispatcher::alltoall)
    return 0;
  double layers = 0;
  for (std::size_t c = 0; c < stage.layers.size(); ++c)
    layers += p_.classes[c].ffn == FfnKind::moe ? stage.layers[c] : 0;
  const Dims& d = shard_.dims;
  return layers * 2 * d.expert_width * d.n * p_.model.moe.moe_router_topk;
}

/// The largest of the named moments (memory_peaks 2.24), in steady state and in step 1.
void LayoutMemory::moments(const StageCounts& last, double stored, const RankState& state,
                           double captured, double kept, RankPeak& peak) const {
  const Dims& d = shard_.dims;
  Moment best{stored, 2 * d.h * d.n};
  if (last.loss) {
    const HeadMemory& h = shard_.head_memory;
    const double alive = stored + h.stored + p_.model.mtp_num_layers * h.mtp;
    consider(best, {alive, h.loss, "loss", h.loss_formula});
    consider(best, {alive, h.out_layer, "output layer backward", h.out_layer_formula});
  }
  // backward through the chunk that runs last: later layers are freed as earlier ones need their
  // transients
  double alive = stored, pair = 0;
  int left = 0;  // recomputed MoE layers whose backward is over or running
  for (std::size_t i = last.order.size(); i-- > 0;) {
    const LayerMemory& memory = shard_.classes[static_cast<std::size_t>(last.order[i])].memory;
    const LayerBytes bytes = layer(last, i);
    const bool again = bytes.rebuild > 0, leaves = memory.leftover > 0 && leaves_graph(i);
    left += leaves ? 1 : 0;
    const double behind = leaves ? std::max(0, left - 2) * memory.input : 0;
    const bool combine = again && memory.forward_combine > memory.backward.bytes;
    consider(best, {alive + behind,
                    bytes.rebuild + (combine ? memory.forward_combine : memory.backward.bytes),
                    again ? "recomputed layer's backward" : "layer backward",
                    combine ? kCombineFormula : memory.backward.formula});
    if (l_.dispatcher == Dispatcher::alltoall)
      consider(best,
               {stored, memory.forward_combine, "MoE combine of the forward", kCombineFormula});
    alive -= leaves && full_ ? 0 : bytes.stored;  // a recomputed layer's input stays
    pair = std::max(pair, bytes.stored);
  }
  // EP overlap: forward and backward of one layer pair live together
  if (l_.overlap_moe_expert_parallel_comm)
    consider(best, {best.stored, best.transient + pair, "overlapped layer pair",
                    "the moment of one microbatch + one layer of the other"});
  // moments are created at the end of step 1, before any graph is captured
  const double fixed = peak.allocated() - peak.cuda_graph;
  const double step = kept + state.gradient_cast;
  peak.before_graphs = fixed + std::max(best.bytes(), step);
  peak.first_step = fixed + std::max(best.bytes() - state.moments, step);
  peak.at_rest = state.total() + kept + (l_.sp() ? 2 * d.h * d.N : 0);
  // graph pools keep what they captured; a full-iteration graph keeps its whole peak
  const bool whole = l_.cuda_graph_impl == CudaGraphImpl::full_iteration;
  consider(best, {whole ? best.bytes() : std::max(captured, kept), state.gradient_cast,
                  "optimizer step", "4 B per element of the gradient shard"});
  peak.stored = best.stored;
  peak.transient = best.transient;
  peak.moment = best.name;
  peak.formula = best.formula;
}

RankPeak LayoutMemory::rank_peak(int rank, MemoryItem* detail) const {
  const RankState& state = mesh_.states[static_cast<std::size_t>(rank)];
  RankPeak peak;
  peak.weights = state.weights;
  peak.gradients = state.gradients;
  peak.optimizer = state.optimizer;
  peak.dispatcher = dispatcher_;
  peak.workspace =
      workspace_terms(p_, l_, shard_.dims, mesh_.params[static_cast<std::size_t>(rank)], rank)
          .total();
  peak.host = state.host;

  const StageCounts* chunks = &mesh_.stages[static_cast<std::size_t>(rank * l_.vpp)];
  const bool offloads = !l_.offload_modules.empty() || l_.cpu_offloading_num_layers > 0;
  std::array<double, 64> bytes_of{}, offloaded{}, captured_of{}, buffers_of{};
  const int vpp = std::min(l_.vpp, 64);
  for (int c = 0; c < vpp; ++c) {
    bytes_of[static_cast<std::size_t>(c)] = chunk(chunks[c]);
    if (offloads) offloaded[static_cast<std::size_t>(c)] = chunk_offloaded(chunks[c]);
    if (graph_ == 0) continue;
    captured_of[static_cast<std::size_t>(c)] = captured(chunks[c]);
    buffers_of[static_cast<std::size_t>(c)] = graph_buffers(chunks[c]);
  }
  const auto& vectors =
      (l_.overlap_moe_expert_parallel_comm ? mesh_.alive_overlap
                                           : mesh_.alive)[static_cast<std::size_t>(rank)];
  double stored = 0, host = 0, pinned = 0;
  const std::vector<int>* at_peak = &vectors.front();
  for (const auto& alive : vectors) {
    double sum = 0, moved = 0, graph = 0, capture = 0;
    for (int c = 0; c < vpp; ++c) {
      const int count = alive[static_cast<std::size_t>(c)];
      sum += count * bytes_of[static_cast<std::size_t>(c)];
      moved += count * offloaded[static_cast<std::size_t>(c)];
      graph += count * buffers_of[static_cast<std::size_t>(c)];
      capture += count * captured_of[static_cast<std::size_t>(c)];
    }
    if (sum > stored) {
      stored = sum;
      at_peak = &alive;
    }
    host = std::max(host, moved);
    pinned = std::max(pinned, std::min(capture, sum));  // full recomputation keeps less
    peak.cuda_graph = std::max(peak.cuda_graph, graph);
  }
  peak.host += host;
  double kept = 0;
  for (int c = 0; c < vpp; ++c) kept += between_steps(chunks[c]);
  moments(chunks[vpp - 1], stored, state, pinned, kept, peak);
  if (detail != nullptr) add_detail(*detail, rank, peak, stored, *at_peak);
  return peak;
}

}  // namespace moecast
