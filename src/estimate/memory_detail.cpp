// The tree of --memory-detail: down to tensors, with counts and formulas.
#include <fmt/format.h>

#include "estimate/memory_peak.hpp"

namespace moecast {
namespace {

MemoryItem item(std::string name, double b, double count = 0, std::string formula = "") {
  return {std::move(name), bytes(b), count, std::move(formula), {}};
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

void LayoutMemory::add_detail(MemoryItem& tree, int rank, const RankPeak& peak,
                              const std::vector<int>& alive) const {
  const RankParams& params = mesh_.params[static_cast<std::size_t>(rank)];
  const double linears = params.dense_linear + params.expert;
  tree = item("allocated at the peak", peak.allocated());
  auto weights = item("weights", peak.weights, params.total());
  weights.children = {item("linears", linear_weight_bytes(p_, l_) * linears, linears,
                           fmt::format("{:.4g} B per element", linear_weight_bytes(p_, l_))),
                      item("embedding, head, norms, router", 2 * (params.total() - linears),
                           params.total() - linears, "2 B per element")};
  auto activations = item("activations in flight", peak.stored);
  for (int c = 0; c < l_.vpp; ++c) {
    const StageCounts& stage = mesh_.stages[static_cast<std::size_t>(rank * l_.vpp + c)];
    for (std::size_t cls = 0; cls < stage.layers.size(); ++cls) {
      const double count =
          static_cast<double>(stage.layers[cls]) * alive[static_cast<std::size_t>(c)];
      if (count == 0) continue;
      auto node = item(class_name(p_, cls), 0, count,
                       fmt::format("chunk {}: {} layers x {} microbatches", c, stage.layers[cls],
                                   alive[static_cast<std::size_t>(c)]));
      if (full_) {
        node.children.push_back(item("layer input", recomputed_[cls].stored * count, count, "2hn"));
      } else {
        for (const SavedTensor& t : shard_.classes[cls].memory.saved) {
          if ((t.dropped_by & recompute_) == 0)
            node.children.push_back(item(t.name, t.bytes * count, count, t.formula));
        }
      }
      for (const MemoryItem& child : node.children) node.bytes += child.bytes;
      activations.children.push_back(std::move(node));
    }
  }
  tree.children = {
      std::move(weights),
      item("gradients", peak.gradients, params.total()),
      item("optimizer", peak.optimizer, 0,
           fmt::format("{:.3g} B per element of the shard", optimizer_bytes_per_param(p_, l_))),
      std::move(activations),
      item("moment", peak.transient, 0, peak.moment),
      item("dispatcher buffers", peak.dispatcher),
      item("CUDA graphs", peak.cuda_graph),
      item("workspaces", peak.workspace)};
}

}  // namespace moecast
