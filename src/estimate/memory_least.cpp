// A lower bound of what a rank allocates, for many recomputation sets side by side.
#include "estimate/memory_peak.hpp"
#include "estimate/two.hpp"

namespace moecast {

/// Moments that are there whatever is recomputed: everything in flight with the backward of the
/// rank's last layer, the loss, and the optimizer step. All sums are those of activations() with
/// terms left out or smaller, in the same order: rounding keeps them smaller. (The layer pair of EP
/// overlap is added to another moment there, hence the factor.)
void LayoutMemory::least_allocated(int rank, const Sets& sets, std::span<double> least) const {
  constexpr double kRounded = 1 - 0x1p-50;
  const auto i = static_cast<std::size_t>(rank);
  const std::size_t count = least.size();
  const RankState& state = mesh_.states[i];
  RankPeak peak;
  peak.weights = state.weights;
  peak.gradients = state.gradients;
  peak.optimizer = state.optimizer;
  peak.dispatcher = shard_.dispatcher_bytes;
  peak.workspace = mesh_.workspace[i];
  const double held = peak.held(), step = state.optimizer_step;
  const StageCounts& last = mesh_.stages()[(i + 1) * static_cast<std::size_t>(l_.vpp) - 1];
  const double forward = 2 * shard_.dims.h * shard_.dims.n;
  const HeadMemory& head = shard_.head_memory;
  const double at_loss = p_.model.mtp_num_layers * head.mtp;
  const double loss = std::max(head.loss, head.out_layer);
  const std::size_t last_layer =
      last.runs.empty() ? 0 : count * static_cast<std::size_t>(last.runs.back().cls);
  for (std::size_t set = 0; set < count; set += 2) {
    Two flight{};
    for (const InFlight::Row& row : in_flight().rows[i]) {
      const double mtp = row.mtp_depths * mtp_input();
      Two sum{mtp, mtp};
      for (std::size_t c = 0; c < shard_.classes.size(); ++c)
        sum += row.layers[c] * load_two(&sets.kept[c * count + set]);
      flight = most_of(flight, sum);
    }
    Two transient{forward, forward};
    if (!last.runs.empty()) {
      transient = most_of(transient, load_two(&sets.backward[last_layer + set]));
      if (overlap()) transient += load_two(&sets.kept[last_layer + set]);
    }
    Two most = flight + transient;
    if (overlap()) most *= kRounded;
    if (last.loss) most = most_of(most, flight + head.stored + at_loss + loss);
    store_two(&least[set], held + most_of(most, Two{step, step}));
  }
}

}  // namespace moecast
