#pragma once
/// The walk of a schedule, fast: the order in which pieces can run is worked out once per shape, a
/// few sets of durations are walked side by side, and of many microbatches only a few are walked.
/// In the steady state every group of microbatches repeats the one before, a constant later; once
/// that is seen, the groups left out follow by adding. With durations on a grid all sums are exact,
/// so the answer is walk()'s, bit for bit.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "estimate/schedule.hpp"

namespace moecast {

/// Multiples of a power of two so small (2^-52 of all work) that no sum of them rounds.
class ExactGrid {
 public:
  /// `work`: seconds of all pieces of all ranks.
  explicit ExactGrid(double work);
  [[nodiscard]] double nearest(double seconds) const;

 private:
  double up_ = 0, down_ = 0;
};
/// Seconds of all pieces of one microbatch; `forward` and the others: their sums over all ranks.
inline double microbatch_work(const ScheduleShape& s, double forward, double backward, double both,
                              double p2p) {
  return forward + backward + both + 2 * p2p * s.pp * s.vpp;
}
/// All durations rounded to their grid.
ScheduleTimes on_grid(const ScheduleShape& s, ScheduleTimes t);

/// Clocks of schedules that run side by side: [index * lanes + lane].
struct ScheduleLanes {
  std::vector<double> durations;  ///< of forward, backward, both
  std::vector<double> p2p;
  bool p2p_blocks = false;
  std::vector<double> slots, free, ends;
};
inline constexpr std::size_t kMostLanes = 8;

/// The pieces of all ranks in an order that respects every dependency.
class ScheduleProgram {
 public:
  explicit ScheduleProgram(const ScheduleShape& s);
  /// Ends of the pieces, two schedules per register; later questions are about this run.
  template <std::size_t kTwos>
  void run(ScheduleLanes& lanes) const;
  /// Per lane: seconds from one group of microbatches to the next where all ranks repeat; negative:
  /// they do not (yet).
  template <std::size_t kTwos>
  [[nodiscard]] std::array<double, 2 * kTwos> periods(const ScheduleLanes& lanes) const;
  /// What walk() says, with `more` groups inserted in the steady state, `period` each; without
  /// `totals`: only when things end. `ends` are those of one lane, `stride` apart.
  void walk(const ScheduleTimes& t, const double* ends, std::size_t stride, int more, double period,
            bool totals, Walk& out) const;
  [[nodiscard]] std::size_t size() const { return steps_.size(); }
  /// False: the order waits for itself (Megatron refuses such shapes).
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  /// Forward and backward of a piece; a schedule without combined steps uses the first of each
  /// pair.
  struct Step {
    std::uint32_t rank = 0, duration = 0;
    std::uint32_t end = 0;          ///< where its end is kept; 0: it is not
    std::uint32_t in[2] = {0, 0};   ///< slots; 0: nothing to wait for
    std::uint32_t out[2] = {1, 1};  ///< slots; 1: nobody waits
    std::uint8_t travels[2] = {0, 0}, sends = 0;
  };
  template <typename Register, std::size_t kLanes, bool kBoth, bool kBlocks>
  void step_through(ScheduleLanes& lanes) const;
  template <std::size_t kTwos, bool kBoth, bool kBlocks>
  void run_steps(ScheduleLanes& lanes) const;
  template <std::size_t kLanes, bool kBoth, bool kBlocks>
  void run_steps_wide(ScheduleLanes& lanes) const;
  [[nodiscard]] Step step_of(int rank, const ScheduleOp& op) const;
  [[nodiscard]] std::uint32_t slot(bool backward, int stage, int microbatch) const;
  void order_steps();
  void reuse_slots();
  void keep_ends();

  ScheduleShape s_;
  bool complete_ = false;
  std::vector<Step> steps_;
  std::size_t slots_ = 0, kept_ = 1;                       ///< ends kept, and one for the rest
  std::vector<std::vector<std::uint32_t>> of_rank_;        ///< steps of a rank, in its order
  std::vector<std::vector<std::uint32_t>> last_backward_;  ///< [rank][chunk]: step
  std::size_t window_ = 0, period_steps_ = 0;  ///< where two periods are compared; 0 steps: nowhere
};

/// Programs of the shapes seen, and scratch. One per thread.
class ScheduleWalker {
 public:
  /// Durations must be on the grid. Without `totals` a rank's busy and blocked seconds are left
  /// out.
  Walk walk(const ScheduleShape& s, const ScheduleTimes& t, bool totals = true);
  /// The same for several sets of durations of one shape: out[i] of t[i].
  void walk(const ScheduleShape& s, std::span<const ScheduleTimes> t, std::span<Walk> out,
            bool totals);

 private:
  template <std::size_t kTwos>
  void side_by_side(const ScheduleShape& s, std::span<const ScheduleTimes> t, std::span<Walk> out,
                    bool totals);
  const ScheduleProgram& program(const ScheduleShape& s);
  std::map<std::tuple<int, int, int, int, bool>, std::unique_ptr<ScheduleProgram>> programs_;
  std::size_t kept_ = 0;
  ScheduleLanes lanes_;
};

}  // namespace moecast
