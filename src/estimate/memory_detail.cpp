// The tree of --memory-detail: down to tensors, with counts and formulas.
#include <fmt/format.h>

#include "estimate/memory_peak.hpp"

namespace moecast {
namespace {

MemoryItem item(std::string name, double b, double count = 0, std::string formula = "") {
  return {std::move(name), bytes(b), count, std::move(formula), {}};
}

void add(MemoryItem& to, const Terms& terms) {
  for (const Term& t : terms) {
    to.children.push_back(item(t.name, t.bytes, t.count, t.formula));
    to.bytes += bytes(t.bytes);
  }
}
MemoryItem group(std::string name, const Terms& terms) {
  MemoryItem node = item(std::move(name), 0);
  add(node, terms);
  return node;
}

std::string class_name(const Problem& p, std::size_t cls) {
  const LayerKind& kind = p.classes[cls];
  static constexpr const char* kMixers[] = {"", "GQA", "MLA", "CSA", "GDN", "KDA", "Mamba"};
  static constexpr const char* kFfns[] = {"", "dense MLP", "MoE"};
  const std::string mixer = kMixers[static_cast<int>(p.model.mixers[kind.mixer].kind)],
                    ffn = kFfns[static_cast<int>(kind.ffn)];
  return mixer + (mixer.empty() || ffn.empty() ? "" : " + ") + ffn + " layers";
}

}  // namespace

void LayoutMemory::add_layers(MemoryItem& tree, const StageCounts& stage, int chunk,
                              int microbatches) const {
  for (std::size_t cls = 0; cls < stage.layers.size(); ++cls) {
    const double count = static_cast<double>(stage.layers[cls]) * microbatches;
    if (count == 0) continue;
    auto node = item(class_name(p_, cls), 0, count,
                     fmt::format("chunk {}: {} layers x {} microbatches", chunk, stage.layers[cls],
                                 microbatches));
    const std::vector<SavedTensor>& saved = shard_.classes[cls].memory.saved;
    if (full_) {
      node.children.push_back(item("layer input", whole_[cls].stored * count, count, "2hn"));
    } else {
      for (const SavedTensor& t : saved) {
        if ((t.dropped_by & recompute_) == 0) {
          node.children.push_back(
              item(std::string(t.name), t.bytes * count, count, std::string(t.formula)));
        }
      }
      const double moved = selective_[cls].offloaded * count;
      if (moved > 0) node.children.push_back(item("moved to the host", -moved, count, "offload"));
    }
    for (const MemoryItem& child : node.children) node.bytes += child.bytes;
    tree.children.push_back(std::move(node));
  }
  const double mtp = stage.mtp_depths * mtp_input() * microbatches;
  if (mtp > 0) {
    tree.children.push_back(item("MTP inputs, norms and projection", mtp,
                                 stage.mtp_depths * microbatches, "12hn per depth"));
  }
}

void LayoutMemory::add_detail(MemoryItem& tree, int rank, const RankPeak& peak,
                              const RankActivations& a) const {
  const RankParams& params = mesh_.params[static_cast<std::size_t>(rank)];
  const RankStateTerms state = rank_state_terms(p_, l_, params, rank);
  tree = item("allocated at the peak", peak.allocated());
  auto optimizer = group("optimizer", state.master);
  add(optimizer, state.moments);
  auto activations = item("activations alive at the peak", peak.stored);
  if (peak.stored >= a.in_flight && a.in_flight > 0) {
    const int* count = alive().vector(rank, a.vector);
    for (int c = 0; c < l_.vpp; ++c) {
      add_layers(activations, mesh_.stages()[static_cast<std::size_t>(rank * l_.vpp + c)], c,
                 count[c]);
    }
    const double rest = peak.stored - a.in_flight;
    if (rest > 0) {
      activations.children.push_back(item("final norm, losses of MTP depths", rest, 0,
                                          "4hn + a loss's kept logits per MTP depth"));
    }
  }
  tree.children = {
      group("weights", state.weights),
      group("gradients", state.gradients),
      std::move(optimizer),
      std::move(activations),
      item("moment", peak.transient, 0, fmt::format("{}: {}", peak.moment, peak.formula)),
      group("dispatcher buffers", dispatcher_terms(p_, shard_key(l_), shard_.dims)),
      item("CUDA graph buffers", peak.cuda_graph, 0,
           a.crossing > 0 && graph_use(l_).whole
               ? "rows that crossed streams: 4 x 2 hx R per MoE layer and microbatch"
               : "2 hx n k per captured layer"),
      group("workspaces", workspace_terms(p_, l_, shard_.dims, params, rank)),
      group("not in the sum: outside the allocator", outside_allocator_terms(p_, l_)),
      item("not in the sum: fragmentation", p_.fragmentation * peak.allocated(), 0,
           "reserved / allocated - 1 of the stack")};
  std::erase_if(tree.children, [](const MemoryItem& i) { return i.bytes.value == 0; });
}

}  // namespace moecast
