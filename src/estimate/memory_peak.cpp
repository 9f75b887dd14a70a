#include "estimate/memory_peak.hpp"

#include <algorithm>

namespace moecast {
namespace {

struct Moment {
  double stored = 0, transient = 0;
  const char* name = "forward";
};
void consider(Moment& best, double stored, double transient, const char* name) {
  if (stored + transient > best.stored + best.transient) best = {stored, transient, name};
}

double graph_bytes(const Layout& l, const Dims& d, const StageCounts& chunk, int alive) {
  const bool layered = l.cuda_graph_impl == CudaGraphImpl::transformer_engine ||
                       l.cuda_graph_impl == CudaGraphImpl::local;
  // static input of every captured layer and microbatch in flight (captured activations are in
  // `stored`)
  return layered ? 2 * d.h * d.n * static_cast<double>(chunk.order.size()) * alive : 0;
}

}  // namespace

double reserved_bytes(const Problem& p, const Layout& l, double allocated) {
  return allocated * (1 + p.stack.fragmentation) + outside_allocator_bytes(p, l);
}

LayoutMemory::LayoutMemory(const Problem& p, const Layout& l, const ShardTables& shard,
                           const MeshTables& mesh)
    : p_(p),
      l_(l),
      shard_(shard),
      mesh_(mesh),
      full_(l.recompute_granularity == RecomputeGranularity::full),
      layered_(full_ || l.cpu_offloading_num_layers > 0),
      recompute_(l.recompute_granularity == RecomputeGranularity::selective
                     ? l.recompute_modules.bits
                     : std::uint16_t{0}),
      dispatcher_(dispatcher_buffer_bytes(p, l, shard.dims)) {
  for (std::size_t i = 0; i < shard.classes.size(); ++i) {
    const ClassTable& c = shard.classes[i];
    const ClassUnder& u = c.under(recompute_, l.offload_modules.bits);
    LayerBytes& b = selective_[i];
    b.offloaded = u.offloadable * l.offload_fraction;
    b.stored = u.stored - b.offloaded;
    b.rebuild = (recompute_ & mask(RecomputeModule::moe)) != 0 ? c.memory.moe_part : 0;
    if (!full_) continue;
    LayerBytes& f = recomputed_[i];
    f.stored = c.memory.input;
    f.rebuild = c.memory.stored(0);
    if (l.recompute_method == RecomputeMethod::uniform && l.recompute_num_layers > 1) {
      f.stored /= l.recompute_num_layers;
      f.rebuild *= l.recompute_num_layers;
    }
  }
}

/// Layer `index` of a chunk: uniform recomputes all, block the first recompute_num_layers of each
/// chunk.
LayerBytes LayoutMemory::layer(const StageCounts& stage, std::size_t index) const {
  const auto cls = static_cast<std::size_t>(stage.order[index]);
  const bool again = full_ && (l_.recompute_method != RecomputeMethod::block ||
                               static_cast<int>(index) < l_.recompute_num_layers);
  LayerBytes b = again ? recomputed_[cls] : selective_[cls];
  if (static_cast<int>(index) < l_.cpu_offloading_num_layers) {
    b.offloaded += b.stored;
    b.stored = 0;
  }
  return b;
}

double LayoutMemory::chunk(const StageCounts& stage) const {
  // MTP keeps its concatenated input, norms and projection per depth
  double sum = stage.mtp_depths * (8 + 4) * shard_.dims.h * shard_.dims.n;
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

/// The largest of the named moments (memory_peaks 2.24).
void LayoutMemory::moments(const StageCounts& last, double stored, double gradient_cast,
                           RankPeak& peak) const {
  Moment best{stored, 2 * shard_.dims.h * shard_.dims.n, "forward"};
  if (last.loss) {
    const HeadMemory& h = shard_.head_memory;
    consider(best, stored + h.stored, h.loss, "loss");
    consider(best, stored + h.stored, h.out_layer, "output layer backward");
  }
  // backward through the chunk that runs last: later layers are freed as earlier ones need their
  // transients
  double alive = stored, pair = 0;
  for (std::size_t i = last.order.size(); i-- > 0;) {
    const LayerMemory& memory = shard_.classes[static_cast<std::size_t>(last.order[i])].memory;
    const LayerBytes bytes = layer(last, i);
    const double combine = bytes.rebuild > 0 ? memory.forward_combine : 0;
    consider(best, alive, bytes.rebuild + std::max(memory.backward, combine),
             bytes.rebuild > 0 ? "recomputed layer's backward" : "layer backward");
    if (l_.dispatcher == Dispatcher::alltoall)
      consider(best, stored, memory.forward_combine, "MoE combine of the forward");
    alive -= bytes.stored;
    pair = std::max(pair, bytes.stored);
  }
  // EP overlap: forward and backward of one layer pair live together
  if (l_.overlap_moe_expert_parallel_comm)
    consider(best, best.stored, best.transient + pair, "overlapped layer pair");
  consider(best, 0, gradient_cast, "optimizer step");
  peak.stored = best.stored;
  peak.transient = best.transient;
  peak.moment = best.name;
}

RankPeak LayoutMemory::rank_peak(int rank, MemoryItem* detail) const {
  const RankState& state = mesh_.states[static_cast<std::size_t>(rank)];
  RankPeak peak;
  peak.weights = state.weights;
  peak.gradients = state.gradients;
  peak.optimizer = state.optimizer;
  peak.dispatcher = dispatcher_;
  peak.workspace =
      workspace_bytes(p_, l_, shard_.dims, mesh_.params[static_cast<std::size_t>(rank)], rank);
  peak.host = state.host;

  const StageCounts* chunks = &mesh_.stages[static_cast<std::size_t>(rank * l_.vpp)];
  const bool offloads = !l_.offload_modules.empty() || l_.cpu_offloading_num_layers > 0;
  std::array<double, 64> bytes_of{}, offloaded{};
  const int vpp = std::min(l_.vpp, 64);
  for (int c = 0; c < vpp; ++c) {
    bytes_of[static_cast<std::size_t>(c)] = chunk(chunks[c]);
    if (offloads) offloaded[static_cast<std::size_t>(c)] = chunk_offloaded(chunks[c]);
  }
  const auto& vectors =
      (l_.overlap_moe_expert_parallel_comm ? mesh_.alive_overlap
                                           : mesh_.alive)[static_cast<std::size_t>(rank)];
  double stored = 0, host = 0;
  const std::vector<int>* at_peak = &vectors.front();
  for (const auto& alive : vectors) {
    double sum = 0, moved = 0, graph = 0;
    for (int c = 0; c < vpp; ++c) {
      const int count = alive[static_cast<std::size_t>(c)];
      sum += count * bytes_of[static_cast<std::size_t>(c)];
      moved += count * offloaded[static_cast<std::size_t>(c)];
      graph += graph_bytes(l_, shard_.dims, chunks[c], count);
    }
    if (sum > stored) {
      stored = sum;
      at_peak = &alive;
    }
    host = std::max(host, moved);
    peak.cuda_graph = std::max(peak.cuda_graph, graph);
  }
  peak.host += host;
  moments(chunks[vpp - 1], stored, state.gradient_cast, peak);
  if (detail != nullptr) add_detail(*detail, rank, peak, *at_peak);
  return peak;
}

}  // namespace moecast
