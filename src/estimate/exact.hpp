#pragma once
/// The exact step of one layout, with everything that describes it.
#include "estimate/evaluate.hpp"

namespace moecast {

struct Evaluator::Exact {
  std::vector<IssuedLayer> layers;  ///< [class] as the layout says, [classes + class] not
                                    ///< recomputed, then the three ends
  std::vector<IssuedStage> stages;  ///< [rank * vpp + chunk]
  IssueFlags flags;
  std::vector<StageTime> stage_times;  ///< [rank * vpp + chunk]
  std::vector<Spent> both;             ///< as ScheduleTimes::both
  ScheduleShape shape;
  ScheduleTimes times;
  Walk walk;
  std::vector<TailCosts> costs;
  StepTail tail;
};

}  // namespace moecast
