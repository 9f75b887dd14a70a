#include "estimate/memory_peak.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace moecast {
namespace {

/// What the layout keeps of one layer, and what it needs for a moment.
struct LayerBytes {
  double stored = 0;      ///< on the GPU, for every microbatch in flight
  double offloaded = 0;   ///< moved to the host
  double rebuild = 0;     ///< transient of recomputation in this layer's backward
};

class Stages {
 public:
  Stages(const Problem& p, const Layout& l, const ShardTables& shard, const MeshTables& mesh)
      : p_(p), l_(l), shard_(shard), mesh_(mesh), full_(l.recompute_granularity == RecomputeGranularity::full) {
    const std::uint16_t recompute = l.recompute_granularity == RecomputeGranularity::selective ? l.recompute_modules.bits : 0;
    for (const ClassTable& c : shard.classes) {
      const ClassUnder& u = c.under(recompute, l.offload_modules.bits);
      LayerBytes b;
      b.offloaded = u.offloadable * l.offload_fraction;
      b.stored = u.stored - b.offloaded;
      b.rebuild = (recompute & mask(RecomputeModule::moe)) != 0 ? c.memory.moe_part : 0;
      selective_.push_back(b);
      LayerBytes f;
      f.stored = c.memory.input;
      f.rebuild = c.memory.stored(0);
      if (l.recompute_method == RecomputeMethod::uniform && l.recompute_num_layers > 1) {
        f.stored /= l.recompute_num_layers;
        f.rebuild *= l.recompute_num_layers;
      }
      recomputed_.push_back(f);
    }
  }

  /// Layer `index` of a chunk: uniform recomputes all, block the first recompute_num_layers of each chunk.
  [[nodiscard]] LayerBytes layer(const StageCounts& stage, std::size_t index) const {
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
  [[nodiscard]] double chunk(const StageCounts& stage) const {
    if (!full_ && l_.cpu_offloading_num_layers == 0) {
      double sum = 0;
      for (std::size_t c = 0; c < stage.layers.size(); ++c) sum += stage.layers[c] * selective_[c].stored;
      return sum + extra(stage);
    }
    double sum = 0;
    for (std::size_t i = 0; i < stage.order.size(); ++i) sum += layer(stage, i).stored;
    return sum + extra(stage);
  }
  [[nodiscard]] double chunk_offloaded(const StageCounts& stage) const {
    double sum = 0;
    for (std::size_t i = 0; i < stage.order.size(); ++i) sum += layer(stage, i).offloaded;
    return sum;
  }
  /// MTP keeps its concatenated input, norms and projection per depth.
  [[nodiscard]] double extra(const StageCounts& stage) const {
    return stage.mtp_depths * (8 + 4) * shard_.dims.h * shard_.dims.n;
  }

 private:
  const Problem& p_;
  const Layout& l_;
  const ShardTables& shard_;
  const MeshTables& mesh_;
  bool full_;
  std::vector<LayerBytes> selective_, recomputed_;
};

struct Moment {
  double stored = 0, transient = 0;
  const char* name = "forward";
};
void consider(Moment& best, double stored, double transient, const char* name) {
  if (stored + transient > best.stored + best.transient) best = {stored, transient, name};
}

/// Backward through the chunk that runs last: later layers are freed as earlier ones need their transients.
void walk_back(Moment& best, const Stages& stages, const ShardTables& shard, const StageCounts& chunk, double stored) {
  double alive = stored;
  for (std::size_t i = chunk.order.size(); i-- > 0;) {
    const auto& memory = shard.classes[static_cast<std::size_t>(chunk.order[i])].memory;
    const LayerBytes bytes = stages.layer(chunk, i);
    consider(best, alive, bytes.rebuild + std::max(memory.backward, bytes.rebuild > 0 ? memory.forward_combine : 0.0),
             bytes.rebuild > 0 ? "recomputed layer's backward" : "layer backward");
    alive -= bytes.stored;
  }
}

double graph_bytes(const Layout& l, const Dims& d, const StageCounts& chunk, int alive) {
  const bool layered = l.cuda_graph_impl == CudaGraphImpl::transformer_engine || l.cuda_graph_impl == CudaGraphImpl::local;
  // static input of every captured layer and microbatch in flight (captured activations are in `stored`)
  return layered ? 2 * d.h * d.n * static_cast<double>(chunk.order.size()) * alive : 0;
}

}  // namespace

double reserved_bytes(const Problem& p, const Layout& l, double allocated) {
  return allocated * (1 + p.stack.fragmentation) + outside_allocator_bytes(p, l);
}

namespace {

MemoryItem item(const char* name, double b, double count = 0, std::string formula = "") {
  return {name, bytes(b), count, std::move(formula), {}};
}

void add_detail(MemoryItem& tree, const Problem& p, const Layout& l, const ShardTables& shard, const MeshTables& mesh, int rank,
                const RankPeak& peak, const std::vector<int>& alive) {
  const RankParams& params = mesh.params[static_cast<std::size_t>(rank)];
  tree = item("allocated at the peak", peak.allocated());
  auto weights = item("weights", peak.weights, params.total(), fmt::format("{:.4g} B per linear weight", linear_weight_bytes(p, l)));
  weights.children = {item("dense parameters", 0, params.dense, "elements"), item("expert parameters", 0, params.expert, "elements")};
  auto activations = item("activations in flight", peak.stored);
  const std::uint16_t recompute = l.recompute_granularity == RecomputeGranularity::selective ? l.recompute_modules.bits : 0;
  for (int c = 0; c < l.vpp; ++c) {
    const StageCounts& stage = mesh.stages[static_cast<std::size_t>(rank * l.vpp + c)];
    for (std::size_t cls = 0; cls < stage.layers.size(); ++cls) {
      const double count = static_cast<double>(stage.layers[cls]) * alive[static_cast<std::size_t>(c)];
      if (count == 0 || l.recompute_granularity == RecomputeGranularity::full) continue;
      auto node = item("layer class", 0, count, fmt::format("chunk {}, class {}", c, cls));
      for (const SavedTensor& t : shard.classes[cls].memory.saved) {
        if ((t.dropped_by & recompute) != 0) continue;
        node.bytes += bytes(t.bytes * count);
        node.children.push_back({t.name, bytes(t.bytes * count), count, t.formula, {}});
      }
      activations.children.push_back(std::move(node));
    }
  }
  tree.children = {std::move(weights), item("gradients", peak.gradients), item("optimizer", peak.optimizer), std::move(activations),
                   item("moment", peak.transient, 0, peak.moment), item("dispatcher buffers", peak.dispatcher),
                   item("CUDA graphs", peak.cuda_graph), item("workspaces", peak.workspace)};
}

}  // namespace

RankPeak rank_peak(const Problem& p, const Layout& l, const ShardTables& shard, const MeshTables& mesh, int rank,
                   MemoryItem* detail) {
  const RankState& state = mesh.states[static_cast<std::size_t>(rank)];
  const Stages stages(p, l, shard, mesh);
  RankPeak peak;
  peak.weights = state.weights;
  peak.gradients = state.gradients;
  peak.optimizer = state.optimizer;
  peak.dispatcher = dispatcher_buffer_bytes(p, l, shard.dims);
  peak.workspace = workspace_bytes(p, l, shard.dims, mesh.params[static_cast<std::size_t>(rank)], rank);
  peak.host = state.host;

  const StageCounts* chunks = &mesh.stages[static_cast<std::size_t>(rank * l.vpp)];
  std::vector<double> bytes_of(static_cast<std::size_t>(l.vpp)), offloaded(static_cast<std::size_t>(l.vpp));
  for (int c = 0; c < l.vpp; ++c) {
    bytes_of[static_cast<std::size_t>(c)] = stages.chunk(chunks[c]);
    if (!l.offload_modules.empty() || l.cpu_offloading_num_layers > 0) {
      offloaded[static_cast<std::size_t>(c)] = stages.chunk_offloaded(chunks[c]);
    }
  }
  const auto& vectors = (l.overlap_moe_expert_parallel_comm ? mesh.alive_overlap : mesh.alive)[static_cast<std::size_t>(rank)];
  double stored = 0, host = 0, graphs = 0;
  const std::vector<int>* at_peak = &vectors.front();
  for (const auto& alive : vectors) {
    double sum = 0, moved = 0, graph = 0;
    for (int c = 0; c < l.vpp; ++c) {
      const int count = alive[static_cast<std::size_t>(c)];
      sum += count * bytes_of[static_cast<std::size_t>(c)];
      moved += count * offloaded[static_cast<std::size_t>(c)];
      graph += graph_bytes(l, shard.dims, chunks[c], count);
    }
    if (sum > stored) {
      stored = sum;
      at_peak = &alive;
    }
    host = std::max(host, moved);
    graphs = std::max(graphs, graph);
  }
  peak.cuda_graph = graphs;
  peak.host += host;

  Moment best;
  const StageCounts& last = chunks[l.vpp - 1];
  best = {stored, 2 * shard.dims.h * shard.dims.n, "forward"};
  if (last.loss) {
    const HeadMemory& h = shard.head_memory;
    consider(best, stored + h.stored, h.loss, "loss");
    consider(best, stored + h.stored, h.out_layer, "output layer backward");
  }
  walk_back(best, stages, shard, last, stored);
  for (const int cls : last.order) {
    if (l.dispatcher != Dispatcher::alltoall) break;
    consider(best, stored, shard.classes[static_cast<std::size_t>(cls)].memory.forward_combine, "MoE combine of the forward");
  }
  if (l.overlap_moe_expert_parallel_comm) {  // forward and backward of one layer pair live together
    double extra = 0;
    for (std::size_t i = 0; i < last.order.size(); ++i) extra = std::max(extra, stages.layer(last, i).stored);
    consider(best, best.stored, best.transient + extra, "overlapped layer pair");
  }
  consider(best, 0, state.gradient_cast, "optimizer step");
  peak.stored = best.stored;
  peak.transient = best.transient;
  peak.moment = best.name;
  if (detail != nullptr) add_detail(*detail, p, l, shard, mesh, rank, peak, *at_peak);
  return peak;
}

}  // namespace moecast
