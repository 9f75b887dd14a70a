#include "search/mesh_memory.hpp"

#include <algorithm>

namespace moecast {
namespace {

/// False: with any graphs but those of a whole iteration the rank allocates what it does without.
bool graphs_matter(const RankActivations& a) {
  const double kept = std::max(a.kept, a.in_flight) + a.optimizer_step;  // pools keep no more
  return a.graph_buffers > 0 || kept > a.peak.stored + a.peak.transient;
}

}  // namespace

MeshMemory::MeshMemory(const Problem& p, const Space& s, double headroom)
    : p_(p),
      s_(s),
      headroom_(headroom),
      capacity_(p.system().gpu.hbm_capacity.value),
      words_(words_of(s.recomputes.size())),
      known_(2 * s.dispatchers.size()),
      kept_(s.offloads.size() * s.dispatchers.size()) {
  for (std::size_t g = 0; g < s.graphs.size(); ++g) {
    InnerIndex i;
    i.graph = static_cast<std::uint16_t>(g);
    graphs_.push_back(graph_use(candidate(s, std::size_t{0}, i)));
  }
  for (Known& k : known_) k.reserved.resize(s.graphs.size() * s.recomputes.size());
  least_.resize((s.recomputes.size() + 1) / 2 * 2);
  least_of_rank_.resize(least_.size());
  peaks_.resize(s.graphs.size());
}

void MeshMemory::enter(std::uint32_t mesh, const Layout& layout, const MeshTables* tables) {
  mesh_ = mesh;
  layout_ = layout;
  tables_ = tables;
  for (Known& k : known_) {
    k.fits.assign(graphs_.size() * words_, 0);
    k.too_big.assign(graphs_.size() * words_, 0);
    k.bounded = false;
  }
}

bool MeshMemory::fits(const InnerIndex& i, const ShardTables& shard, bool quick) {
  Known& k = known(i);
  const std::size_t word = i.graph * words_ + i.recompute / kBitsPerWord;
  const ChoiceBits bit = ChoiceBits{1} << i.recompute % kBitsPerWord;
  if (((k.fits[word] | k.too_big[word]) & bit) == 0) ask(i, shard, quick, k);
  if (quick && !k.bounded && (k.too_big[word] & bit) != 0) ask_all(i, shard, k);
  return (k.fits[word] & bit) != 0;
}

bool MeshMemory::alike(const InnerIndex& a, const InnerIndex& b) const {
  const Known& k = known(a);
  if (&k != &known(b)) return false;
  for (std::size_t w = 0; w < words_; ++w) {
    if (k.fits[a.graph * words_ + w] != k.fits[b.graph * words_ + w] ||
        k.too_big[a.graph * words_ + w] != k.too_big[b.graph * words_ + w])
      return false;
  }
  return true;
}

/// With all graphs.
void MeshMemory::ask(const InnerIndex& i, const ShardTables& shard, bool quick, Known& k) {
  const Layout l = candidate(s_, layout_, i);
  const LayoutMemory memory(p_, l, shard, *tables_);
  std::fill(peaks_.begin(), peaks_.end(), 0.0);
  for (const int rank : tables_->pipeline->fullest) {
    const RankActivations a = memory.activations(rank);
    const double eager = allocated(a, {}, 0);
    if (quick && missing(reserved_bytes(p_, *tables_, eager)) > 0) {
      for (std::size_t g = 0; g < graphs_.size(); ++g)
        add_bit(&k.too_big[g * words_], i.recompute);  // they only add
      return;
    }
    if (!graphs_matter(a)) {
      const double of_iteration = allocated(a, {0, true}, 0);
      for (std::size_t g = 0; g < graphs_.size(); ++g)
        peaks_[g] = std::max(peaks_[g], graphs_[g].whole ? of_iteration : eager);
      continue;
    }
    for (std::size_t g = 0; g < graphs_.size(); ++g) {
      const GraphUse use = graphs_[g];
      const double pinned =
          asks_graph_pools(a, use) ? memory.pinned_by_graphs(rank, use.modules) : 0;
      peaks_[g] = std::max(peaks_[g], allocated(a, use, pinned));
    }
  }
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    double& reserved = k.reserved[g * s_.recomputes.size() + i.recompute];
    reserved = reserved_bytes(p_, *tables_, peaks_[g]);
    add_bit(&(missing(reserved) > 0 ? k.too_big : k.fits)[g * words_], i.recompute);
  }
}

/// What a lower bound says of all recompute choices at once.
void MeshMemory::ask_all(InnerIndex i, const ShardTables& shard, Known& k) {
  k.bounded = true;
  const Kept& layers = kept(i, shard);
  if (!layers.alike) return;
  const Layout l = candidate(s_, layout_, i);
  const LayoutMemory memory(p_, l, shard, *tables_);
  std::fill(least_.begin(), least_.end(), 0.0);
  for (const int rank : tables_->pipeline->fullest) {
    memory.least_allocated(rank, layers.sets, least_of_rank_);
    for (std::size_t r = 0; r < least_.size(); ++r)
      least_[r] = std::max(least_[r], least_of_rank_[r]);
  }
  for (std::size_t r = 0; r < s_.recomputes.size(); ++r) {
    if (missing(reserved_bytes(p_, *tables_, least_[r])) <= 0) continue;
    for (std::size_t g = 0; g < graphs_.size(); ++g) add_bit(&k.too_big[g * words_], r);
  }
}

const MeshMemory::Kept& MeshMemory::kept(InnerIndex i, const ShardTables& shard) {
  Kept& k = kept_[i.offload * s_.dispatchers.size() + i.dispatcher];
  const std::uint64_t group = shard_group(s_, mesh_);
  if (k.any && k.group == group) return k;
  k.any = k.alike = true;
  k.group = group;
  k.sets.kept.assign(shard.classes.size() * least_.size(), 0.0);
  k.sets.backward = k.sets.kept;
  for (std::size_t r = 0; r < s_.recomputes.size(); ++r) {
    i.recompute = static_cast<std::uint16_t>(r);
    const Layout l = candidate(s_, layout_, i);
    const LayoutMemory memory(p_, l, shard, *tables_);
    k.alike = k.alike && memory.alike();
    for (std::size_t c = 0; c < shard.classes.size(); ++c) {
      k.sets.kept[c * least_.size() + r] = memory.kept_of(c);
      k.sets.backward[c * least_.size() + r] = memory.backward_of(c);
    }
  }
  return k;
}

}  // namespace moecast
