#pragma once
/// What a step does after its last backward and before its first forward: gradient reduction,
/// optimizer, parameter gather. Ref: Megatron
/// core/distributed/{distributed_data_parallel,param_and_grad_buffer}.py, core/optimizer; timeline
/// sections 7 and 8.
#include "estimate/rank_params.hpp"
#include "estimate/schedule.hpp"

namespace moecast {

/// One rank's collectives and optimizer, in seconds.
struct TailCosts {
  double reduce =
      0;  ///< reduce-scatter (all-reduce without distributed optimizer) of all gradients
  double reduce_bucket =
      0;              ///< its last bucket: what cannot start before the last gradient is there
  double gather = 0;  ///< all-gather of all parameters
  double gather_bucket = 0;  ///< its first bucket
  double optimizer = 0;      ///< scaling, norm, Adam, casts, clearing the gradient buffer
};
double optimizer_seconds(const Problem& p, const Layout& l, const RankParams& params);
/// Data loading, logging, norm sync: once per step.
double step_fixed_seconds(const Problem& p);
TailCosts tail_costs(const Problem& p, const Layout& l, const RankParams& params);

struct StepTail {
  double synced =
      0;  ///< when the slowest rank has reduced its gradients (the grad norm waits for all)
  std::vector<double> reduced;  ///< per rank: end of its own reduction
  double optimizer = 0;         ///< of the slowest rank
  double gather_exposed = 0;    ///< of the slowest rank
  double fixed = 0;             ///< data loading, logging, norm sync
  double step = 0;
};
/// backward0 and forward0: durations of chunk 0 on each rank (the windows that hide the
/// collectives). `t`: where to write it, to spare its memory.
StepTail step_tail(const Problem& p, const Layout& l, const std::vector<TailCosts>& costs,
                   const Walk& timeline, const std::vector<double>& forward0,
                   const std::vector<double>& backward0, StepTail t = {});

}  // namespace moecast
