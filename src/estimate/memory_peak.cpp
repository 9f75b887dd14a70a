#include "estimate/memory_peak.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace moecast {

struct LayoutMemory::Moment {
  double stored = 0, transient = 0;
  const char* name = "forward";
  const char* formula = "2hn";
  [[nodiscard]] double bytes() const { return stored + transient; }
  void consider(const Moment& other) {
    if (other.bytes() > bytes()) *this = other;
  }
};

double reserved_bytes(const Problem& p, const MeshTables& mesh, double allocated) {
  return allocated * (1 + p.fragmentation) + mesh.outside;
}

GraphUse graph_use(const Layout& l) {
  return {captured_modules(l), l.cuda_graph_impl == CudaGraphImpl::full_iteration};
}

LayoutMemory::LayoutMemory(const Problem& p, const Layout& l, const ShardTables& shard,
                           const MeshTables& mesh)
    : p_(p),
      l_(l),
      shard_(shard),
      mesh_(mesh),
      full_(l.recompute_granularity == RecomputeGranularity::full),
      recompute_(selective_modules(l)) {
  constexpr int kAll = std::numeric_limits<int>::max();
  const bool block = full_ && l.recompute_method == RecomputeMethod::block;
  layered_ = block || l.cpu_offloading_num_layers > 0;
  if (full_) recomputed_ = block ? l.recompute_num_layers : kAll;
  for (std::size_t i = 0; i < shard.classes.size(); ++i) {
    const ClassTable& c = shard.classes[i];
    const ClassUnder& u = c.under(recompute_, l.offload_modules.bits);
    const double offloaded = u.offloadable * l.offload_fraction;
    selective_[i] = {u.stored - offloaded, offloaded, u.rebuild};
    if (!full_) continue;
    LayerBytes& f = whole_[i];
    f = {c.memory.input, 0, c.memory.stored(0) - c.memory.attributes};
    if (l.recompute_method == RecomputeMethod::uniform && l.recompute_num_layers > 1) {
      f.stored /= l.recompute_num_layers;
      f.rebuild *= l.recompute_num_layers;
    }
  }
}

/// Uniform recomputes all layers, block the first recompute_num_layers of each chunk; layer offload
/// moves the first cpu_offloading_num_layers.
template <typename F>
void LayoutMemory::backwards(const StageCounts& stage, F f) const {
  const int moved = l_.cpu_offloading_num_layers;
  int end = stage.total;
  for (auto run = stage.runs.rbegin(); run != stage.runs.rend(); ++run) {
    const int begin = end - run->count;
    const auto cls = static_cast<std::size_t>(run->cls);
    while (end > begin) {  // a run may be cut where recomputation or offload ends
      int from = begin;
      if (recomputed_ < end) from = std::max(from, recomputed_);
      if (moved < end) from = std::max(from, moved);
      const bool again = full_ && end <= recomputed_;
      f(Piece{again ? whole_[cls] : selective_[cls], end <= moved, again, run->cls, end - from});
      end = from;
    }
  }
}

/// MTP keeps its concatenated input, norms and projection per depth.
double LayoutMemory::chunk(const StageCounts& stage) const {
  double sum = stage.mtp_depths * mtp_input();
  backwards(stage, [&](const Piece& piece) { sum += piece.count * piece.stored(); });
  return sum;
}

double LayoutMemory::chunk_offloaded(const StageCounts& stage) const {
  double sum = 0;
  backwards(stage, [&](const Piece& piece) { sum += piece.count * piece.offloaded(); });
  return sum;
}

/// The dispatcher's attributes, and behind recomputed MoE blocks the input and its gradient that
/// the held probabilities keep alive until the block runs again (bench/memory_probe).
double LayoutMemory::between_steps(int rank) const {
  const auto i = static_cast<std::size_t>(rank);
  const bool leaves = leaves_graph(recomputed_ > 0);
  double sum = 0;
  for (std::size_t c = 0; c < shard_.classes.size(); ++c) {
    const LayerMemory& m = shard_.classes[c].memory;
    sum += mesh_.pipeline->layers[i][c] * (m.attributes + (leaves && !layered_ ? m.leftover : 0));
  }
  if (!leaves || !layered_) return sum;
  for (int c = 0; c < l_.vpp; ++c) {
    const StageCounts& stage =
        mesh_.stages()[i * static_cast<std::size_t>(l_.vpp) + static_cast<std::size_t>(c)];
    // of the chunk's layers that are recomputed
    const double share =
        full_ && stage.total > recomputed_ ? recomputed_ / static_cast<double>(stage.total) : 1;
    for (std::size_t k = 0; k < stage.layers.size(); ++k)
      sum += share * stage.layers[k] * shard_.classes[k].memory.leftover;
  }
  return sum;
}
bool LayoutMemory::leaves_graph(bool recomputed_whole) const {
  return full_ ? recomputed_whole : (recompute_ & mask(RecomputeModule::moe)) != 0;
}

/// Of a layer's backward, with what recomputation rebuilds before it.
Transient LayoutMemory::backward_transient(std::size_t cls, double rebuild) const {
  const LayerMemory& memory = shard_.classes[cls].memory;
  const bool combine = rebuild > 0 && memory.forward_combine > memory.backward.bytes;
  return {rebuild + (combine ? memory.forward_combine : memory.backward.bytes),
          combine ? kCombineFormula : memory.backward.formula};
}

/// Backward through the chunk that runs last: later layers are freed as earlier ones need their
/// transients. Along equal layers the bytes are a convex function of the layer (freed activations
/// fall, what recomputed blocks leave behind grows from the third on), so the first or the last of
/// them is the worst.
void LayoutMemory::layers_backward(const StageCounts& last, double stored, Moment& best,
                                   double& pair) const {
  double alive = stored;
  int left = 0;  // recomputed MoE layers whose backward is over or running
  backwards(last, [&](const Piece& piece) {
    const auto cls = static_cast<std::size_t>(piece.cls);
    const LayerMemory& memory = shard_.classes[cls].memory;
    const bool again = piece.bytes.rebuild > 0;
    const bool leaves = memory.leftover > 0 && leaves_graph(piece.recomputed_whole);
    const Transient transient = backward_transient(cls, piece.bytes.rebuild);
    const double freed = leaves && full_ ? 0 : piece.stored();  // a recomputed layer's input stays
    for (const int i : {0, piece.count - 1}) {
      const double behind = leaves ? std::max(0, left + i - 1) * memory.input : 0;
      best.consider({alive - i * freed + behind, transient.bytes,
                     again ? "recomputed layer's backward" : "layer backward", transient.formula});
    }
    if (l_.dispatcher == Dispatcher::alltoall) {
      best.consider(
          {stored, memory.forward_combine, "MoE combine of the forward", kCombineFormula});
    }
    left += leaves ? piece.count : 0;
    alive -= piece.count * freed;
    pair = std::max(pair, piece.stored());
  });
}

/// The largest of the named moments, in steady state and in step 1.
void LayoutMemory::moments(const StageCounts& last, const RankState& state,
                           RankActivations& a) const {
  const Dims& d = shard_.dims;
  RankPeak& peak = a.peak;
  Moment best{a.in_flight, 2 * d.h * d.n};
  if (last.loss) {
    const HeadMemory& h = shard_.head_memory;
    const double alive = a.in_flight + h.stored + p_.model.mtp_num_layers * h.mtp;
    best.consider({alive, h.loss, "loss", h.loss_formula});
    best.consider({alive, h.out_layer, "output layer backward", h.out_layer_formula});
  }
  double pair = 0;
  layers_backward(last, a.in_flight, best, pair);
  // EP overlap: forward and backward of one layer pair live together
  if (l_.overlap_moe_expert_parallel_comm) {
    best.consider({best.stored, best.transient + pair, "overlapped layer pair",
                   "the moment of one microbatch + one layer of the other"});
  }
  // moments are created at the end of step 1, before any graph is captured
  const double step = a.kept + state.optimizer_step;
  peak.before_graphs = peak.held() + std::max(best.bytes(), step);
  peak.first_step = peak.held() + std::max(best.bytes() - state.moments, step);
  peak.at_rest = peak.held() + a.kept;
  peak.stored = best.stored;
  peak.transient = best.transient;
  peak.moment = best.name;
  peak.formula = best.formula;
  a.optimizer_step = state.optimizer_step;
}

/// All layers of a class alike.
void LayoutMemory::stored(int rank, RankActivations& a) const {
  const auto& bytes = full_ ? whole_ : selective_;
  for (const InFlight::Row& row : in_flight().rows[static_cast<std::size_t>(rank)]) {
    double sum = row.mtp_depths * mtp_input(), moved = 0;
    for (std::size_t c = 0; c < shard_.classes.size(); ++c) {
      sum += row.layers[c] * bytes[c].stored;
      moved += row.layers[c] * bytes[c].offloaded;
    }
    if (sum > a.in_flight) {
      a.in_flight = sum;
      a.vector = row.vector;
    }
    a.peak.host = std::max(a.peak.host, moved);
  }
}

void LayoutMemory::stored_by_chunk(int rank, RankActivations& a) const {
  const StageCounts* chunks = &mesh_.stages()[static_cast<std::size_t>(rank * l_.vpp)];
  std::vector<double> bytes_of, offloaded;
  for (int c = 0; c < l_.vpp; ++c) {
    bytes_of.push_back(chunk(chunks[c]));
    offloaded.push_back(chunk_offloaded(chunks[c]));
  }
  for (std::size_t v = 0; v < alive().size(rank); ++v) {
    const int* count = alive().vector(rank, v);
    double sum = 0, moved = 0;
    for (std::size_t c = 0; c < bytes_of.size(); ++c) {
      sum += count[c] * bytes_of[c];
      moved += count[c] * offloaded[c];
    }
    if (sum > a.in_flight) {
      a.in_flight = sum;
      a.vector = v;
    }
    a.peak.host = std::max(a.peak.host, moved);
  }
}

/// EP overlap hands rows between two streams: dispatched rows and expert outputs forward, the
/// gradients of both backward. What was recorded on another stream is not reused while a graph is
/// captured unless the allocator follows the graph (graph_capture_record_stream_reuse). Ref:
/// megatron/core/pipeline_parallel/utils.py ScheduleNode; PyTorch issue 155398 and pull request
/// 158352; bench/memory_probe/graphs.py on an H200.
double LayoutMemory::crossing_streams(int rank) const {
  if (!overlap() || !p_.features.captures_without_reuse) return 0;
  double layers = 0;
  for (std::size_t c = 0; c < shard_.classes.size(); ++c) {
    if (p_.classes[c].ffn == FfnKind::moe)
      layers += mesh_.pipeline->layers[static_cast<std::size_t>(rank)][c];
  }
  return 4 * 2 * shard_.dims.expert_width * shard_.dims.rows_held * layers * mesh_.microbatches;
}

RankActivations LayoutMemory::activations(int rank) const {
  RankActivations a;
  const auto i = static_cast<std::size_t>(rank);
  const RankState& state = mesh_.states[i];
  a.peak.weights = state.weights;
  a.peak.gradients = state.gradients;
  a.peak.optimizer = state.optimizer;
  a.peak.dispatcher = shard_.dispatcher_bytes;
  a.peak.workspace = mesh_.workspace[i];

  a.kept = between_steps(rank);
  layered_ ? stored_by_chunk(rank, a) : stored(rank, a);
  a.peak.host += state.host;
  moments(mesh_.stages()[(i + 1) * static_cast<std::size_t>(l_.vpp) - 1], state, a);
  // static outputs that eager execution would not keep: alltoall's permuted rows wait in their
  // buffer for the exchange
  if (l_.dispatcher == Dispatcher::alltoall) {
    a.graph_buffers = in_flight().moe_layers[i] * 2.0 * shard_.dims.expert_width * shard_.dims.n *
                      p_.model.moe.moe_router_topk;
  }
  a.crossing = crossing_streams(rank);
  return a;
}

double LayoutMemory::pinned_by_graphs(int rank, std::uint8_t modules) const {
  std::array<double, kMaxClasses> captured;
  for (std::size_t c = 0; c < shard_.classes.size(); ++c)
    captured[c] = shard_.classes[c].memory.captured(recompute_, modules);
  return layered_ ? pinned_by_chunk(rank, captured) : pinned(rank, captured);
}

/// All layers of a class alike: no vector that another exceeds pins more.
double LayoutMemory::pinned(int rank, const std::array<double, kMaxClasses>& captured) const {
  const auto& bytes = full_ ? whole_ : selective_;
  double most = 0;
  for (const InFlight::Row& row : in_flight().rows[static_cast<std::size_t>(rank)]) {
    double all = 0, sum = row.mtp_depths * mtp_input();
    for (std::size_t c = 0; c < shard_.classes.size(); ++c) {
      all += row.layers[c] * captured[c];
      sum += row.layers[c] * bytes[c].stored;
    }
    most = std::max(most, std::min(all, sum));
  }
  return most;
}

double LayoutMemory::pinned_by_chunk(int rank,
                                     const std::array<double, kMaxClasses>& captured) const {
  const StageCounts* chunks = &mesh_.stages()[static_cast<std::size_t>(rank * l_.vpp)];
  double pinned = 0;
  for (std::size_t v = 0; v < alive().size(rank); ++v) {
    double all = 0, sum = 0;
    for (int c = 0; c < l_.vpp; ++c) {
      const int count = alive().vector(rank, v)[c];
      sum += count * chunk(chunks[c]);
      for (std::size_t k = 0; k < chunks[c].layers.size(); ++k)
        all += count * (chunks[c].layers[k] * captured[k]);
    }
    pinned = std::max(pinned, std::min(all, sum));
  }
  return pinned;
}

RankPeak LayoutMemory::with_graphs(int rank, const RankActivations& a, GraphUse graphs) const {
  RankPeak peak = a.peak;
  peak.cuda_graph = graph_buffers(a, graphs);
  const double pinned = asks_graph_pools(a, graphs) ? pinned_by_graphs(rank, graphs.modules) : 0;
  const double kept = kept_by_graphs(a, graphs, pinned);
  if (kept + a.optimizer_step > peak.stored + peak.transient) {
    peak.stored = kept;
    peak.transient = a.optimizer_step;
    peak.moment = "optimizer step";
    peak.formula =
        "4 B per element of a cast gradient shard, 2 B of masters cast to quantised weights";
  }
  return peak;
}

RankPeak LayoutMemory::rank_peak(int rank, MemoryItem* detail) const {
  const RankActivations a = activations(rank);
  const RankPeak peak = with_graphs(rank, a, graph_use(l_));
  if (detail != nullptr) add_detail(*detail, rank, peak, a);
  return peak;
}

}  // namespace moecast
