#pragma once
/// The walk of a schedule, fast: the order in which pieces can run is worked out once per shape,
/// and of many microbatches only a few are walked. In the steady state every group of microbatches
/// repeats the one before, a constant later; once that is seen, the groups left out follow by
/// adding. With durations on a grid all sums are exact, so the answer is walk()'s, bit for bit.
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "estimate/schedule.hpp"

namespace moecast {

/// Durations rounded to a power of two so small (2^-52 of all work) that no sum of them rounds.
ScheduleTimes on_grid(const ScheduleShape& s, ScheduleTimes t);

/// The pieces of all ranks in an order that respects every dependency.
class ScheduleProgram {
 public:
  explicit ScheduleProgram(const ScheduleShape& s);
  /// Ends of the pieces; later questions are about this run.
  void run(const ScheduleTimes& t, std::vector<double>& slots, std::vector<double>& ends) const;
  /// Seconds from one group of microbatches to the next where all ranks repeat; negative: they do
  /// not (yet).
  [[nodiscard]] double period(const std::vector<double>& ends) const;
  /// What walk() says, with `more` groups inserted in the steady state, `period` each; without
  /// `totals`: only when things end.
  [[nodiscard]] Walk walk(const ScheduleTimes& t, const std::vector<double>& ends, int more,
                          double period, bool totals) const;
  [[nodiscard]] std::size_t size() const { return steps_.size(); }
  /// False: the order waits for itself (Megatron refuses such shapes).
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  struct Step {
    std::uint32_t rank = 0;
    std::uint32_t duration = 0;                       ///< into the table of forward, backward, both
    std::uint32_t forward_in = 0, backward_in = 0;    ///< slots; 0: nothing to wait for
    std::uint32_t forward_out = 1, backward_out = 1;  ///< slots; 1: nobody waits
    bool forward_travels = false, backward_travels = false, sends = false;
  };
  void add(int rank, const ScheduleOp& op);
  [[nodiscard]] std::uint32_t slot(bool backward, int stage, int microbatch) const;

  ScheduleShape s_;
  bool complete_ = false;
  std::vector<Step> steps_;
  std::vector<std::vector<std::uint32_t>> of_rank_;        ///< steps of a rank, in its order
  std::vector<std::vector<std::uint32_t>> last_backward_;  ///< [rank][chunk]: step
  std::size_t window_ = 0, period_steps_ = 0;  ///< where two periods are compared; 0 steps: nowhere
};

/// Programs of the shapes seen, and scratch. One per thread.
class ScheduleWalker {
 public:
  /// Durations must be on the grid. Without `totals` a rank's busy and blocked seconds are left out.
  Walk walk(const ScheduleShape& s, const ScheduleTimes& t, bool totals = true);

 private:
  const ScheduleProgram& program(const ScheduleShape& s);
  std::map<std::tuple<int, int, int, int, bool>, std::unique_ptr<ScheduleProgram>> programs_;
  std::size_t kept_ = 0;
  std::vector<double> slots_, ends_;
};

}  // namespace moecast
