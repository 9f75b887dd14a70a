#pragma once
/// The exact step of one layout, with everything that describes it.
#include "estimate/evaluate.hpp"

namespace moecast {

struct Evaluator::Exact {
  IssueFlags flags;
  ScheduleShape shape;
  ScheduleTimes times;  ///< on the grid
  Walk walk;
  StepTail tail;
};

/// Where the seconds of a layout's stages go.
struct Evaluator::Detail {
  IssuedSet issued;
  std::vector<IssuedStage> stages;     ///< [rank * vpp + chunk]
  std::vector<StageTime> stage_times;  ///< [rank * vpp + chunk]
  std::vector<Spent> both;             ///< as ScheduleTimes::both
};

}  // namespace moecast
