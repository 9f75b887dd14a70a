#include "layout/uneven_split.hpp"

#include <vector>

#include "layout/pipeline_plan.hpp"

namespace moecast {
namespace {

/// Layers of every stage, chunk by chunk; empty when they do not divide.
std::vector<int> counts_of(const UnevenSplit& split, int layers, int pp, int vpp) {
  std::vector<int> counts;
  if (split.first || split.last) {
    const int middle_ranks = pp - (split.first ? 1 : 0) - (split.last ? 1 : 0);
    const int middle = layers - split.first.value_or(0) - split.last.value_or(0);
    if (middle_ranks < 0 || middle < 0 || (middle_ranks == 0) != (middle == 0)) return {};
    const int each = middle_ranks > 0 ? middle / middle_ranks : 0;
    if (middle_ranks > 0 && middle % middle_ranks != 0) return {};
    for (int chunk = 0; chunk < vpp; ++chunk) {
      for (int rank = 0; rank < pp; ++rank) {
        int own = rank == 0 ? split.first.value_or(each) : each;
        if (rank == pp - 1) own = split.last.value_or(each);
        if (own < 0 || own % vpp != 0) return {};
        counts.push_back(own / vpp);
      }
    }
    return counts;
  }
  const int slots = layers + (split.embedding ? 1 : 0) + (split.loss ? 1 : 0);
  if (slots % pp != 0 || slots / pp % vpp != 0) return {};
  counts.assign(static_cast<std::size_t>(pp) * static_cast<std::size_t>(vpp), slots / pp / vpp);
  counts.front() -= split.embedding ? 1 : 0;
  counts.back() -= split.loss ? 1 : 0;
  return counts.front() < 0 || counts.back() < 0 ? std::vector<int>() : counts;
}

}  // namespace

std::string layout_string_of(const UnevenSplit& split, int layers, int pp, int vpp,
                             int mtp_layers) {
  constexpr int kMost = 1 << 16;
  if (pp < 1 || vpp < 1 || layers < 1 || pp > kMost / vpp) return "";
  const std::vector<int> counts = counts_of(split, layers, pp, vpp);
  if (counts.empty()) return "";
  PipelinePlan plan;
  plan.pp = pp;
  plan.vpp = vpp;
  plan.mtp_num_layers = mtp_layers;
  int layer = 0;
  for (const int count : counts) {
    Stage stage;
    for (int i = 0; i < count; ++i) stage.layers.push_back(layer++);
    plan.stages.push_back(std::move(stage));
  }
  plan.stages.front().embedding = true;
  plan.stages.back().mtp = mtp_layers > 0;
  plan.stages.back().loss = true;
  return to_layout_string(plan);
}

}  // namespace moecast
