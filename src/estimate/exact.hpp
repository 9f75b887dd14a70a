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

/// Seconds of one microbatch's pieces, added one after the other; `own`: of the distinct ones.
double work_in_order(const ScheduleShape& s, const Pipeline::Distinct& distinct,
                     const ScheduleTimes& own);
/// The grid of all work, without adding all of it (tested against work_in_order).
ExactGrid grid_of(const ScheduleShape& s, const Pipeline::Distinct& distinct,
                  const ScheduleTimes& own);

/// Where the seconds of a layout's stages go.
struct Evaluator::Detail {
  IssuedSet issued;
  std::vector<IssuedStage> stages;     ///< [rank * vpp + chunk]
  std::vector<StageTime> stage_times;  ///< [rank * vpp + chunk]
  std::vector<Spent> both;             ///< as ScheduleTimes::both
};

}  // namespace moecast
