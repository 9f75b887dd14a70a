#include "estimate/stage_transfers.hpp"

#include "estimate/step_tail.hpp"

namespace moecast {
namespace {

/// Seconds of a stage's offload traffic, each direction.
double offload_seconds(const Problem& p, const Layout& l, const ShardTables& s,
                       const StageCounts& stage) {
  if (l.offload_modules.empty() && l.cpu_offloading_num_layers == 0) return 0;
  const std::uint16_t recompute = selective_modules(l);
  double moved = 0;
  int at = 0;
  for (const LayerRun& run : stage.runs) {
    const ClassUnder& u =
        s.classes[static_cast<std::size_t>(run.cls)].under(recompute, l.offload_modules.bits);
    const int whole = std::clamp(l.cpu_offloading_num_layers - at, 0, run.count);
    moved += whole * u.stored + (run.count - whole) * u.offloadable * l.offload_fraction;
    at += run.count;
  }
  return p.prices().host_copy(moved).value;
}

/// Megatron-FSDP gathers the weights of every unit before its forward and again before its
/// backward, and reduce-scatters its gradients after it, for every microbatch; a stage hides them
/// under its own work.
struct FsdpTraffic {
  double gather = 0, scatter = 0;  ///< seconds per stage
};
FsdpTraffic fsdp_traffic(const Problem& p, const Layout& l, const StageCounts& stage) {
  FsdpTraffic t;
  if (l.fsdp == FsdpSharding::none) return t;
  RankParams params;
  for (std::size_t cls = 0; cls < stage.layers.size(); ++cls) {
    const RankParams layer = layer_rank_params(p, l, p.classes[cls]);
    params.dense += stage.layers[cls] * layer.dense;
    params.expert += stage.layers[cls] * layer.expert;
  }
  const TailCosts costs = tail_costs(p, l, params);
  t.gather = costs.gather;
  t.scatter = costs.reduce;
  return t;
}

}  // namespace

Spent Transfers::over(Spent s) const {
  const double offload_exposed = std::max(0.0, offload - s.duration);
  s.duration += offload_exposed;
  s.offload_exposed += offload_exposed;
  const double exposed = std::max(0.0, fsdp - s.duration);
  s.duration += exposed;
  s.dp_exposed += exposed;
  return s;
}

StageTransfers stage_transfers(const Problem& p, const Layout& l, const ShardTables& s,
                               const StageCounts& stage) {
  const double offload = offload_seconds(p, l, s, stage);
  const FsdpTraffic fsdp = fsdp_traffic(p, l, stage);
  return {{offload, fsdp.gather},
          {offload, fsdp.gather + fsdp.scatter},
          {offload, 2 * fsdp.gather + fsdp.scatter}};
}

}  // namespace moecast
