// A lower bound of what a rank allocates, for many recomputation sets side by side.
#include "estimate/memory_peak.hpp"
#include "estimate/two.hpp"

namespace moecast {

/// Moments that are there whatever is recomputed: everything in flight with the first transient,
/// and the loss. All sums are those of activations() with terms left out or smaller, in the same
/// order: rounding keeps them smaller.
void LayoutMemory::least_allocated(int rank, std::span<const double> kept,
                                   std::span<double> least) const {
  const auto i = static_cast<std::size_t>(rank);
  const std::size_t sets = least.size();
  const RankState& state = mesh_.states[i];
  RankPeak peak;
  peak.weights = state.weights;
  peak.gradients = state.gradients;
  peak.optimizer = state.optimizer;
  peak.dispatcher = shard_.dispatcher_bytes;
  peak.workspace = mesh_.workspace[i];
  const StageCounts& last = mesh_.stages()[(i + 1) * static_cast<std::size_t>(l_.vpp) - 1];
  double transient = 2 * shard_.dims.h * shard_.dims.n;
  if (!last.runs.empty()) {
    const auto cls = static_cast<std::size_t>(last.runs.back().cls);
    transient = std::max(transient, shard_.classes[cls].memory.backward.bytes);
  }
  const HeadMemory& head = shard_.head_memory;
  const double at_loss = p_.model.mtp_num_layers * head.mtp;
  const double loss = std::max(head.loss, head.out_layer);
  for (std::size_t set = 0; set < sets; set += 2) {
    Two flight{};
    for (const InFlight::Row& row : in_flight().rows[i]) {
      const double mtp = row.mtp_depths * mtp_input();
      Two sum{mtp, mtp};
      for (std::size_t c = 0; c < shard_.classes.size(); ++c)
        sum += row.layers[c] * load_two(&kept[c * sets + set]);
      flight = most_of(flight, sum);
    }
    Two most = flight + transient;
    if (last.loss) most = most_of(most, flight + head.stored + at_loss + loss);
    store_two(&least[set], peak.held() + most);
  }
}

}  // namespace moecast
