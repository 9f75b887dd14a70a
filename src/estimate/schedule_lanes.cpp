// Schedules of one shape, walked side by side.
#include <algorithm>
#include <cstring>
#include <utility>

#include "estimate/schedule_program.hpp"
#include "estimate/two.hpp"

namespace moecast {
/// As many schedules in a register as it holds. Inlined, so that it is compiled for the registers
/// of its caller.
template <typename Register, std::size_t kLanes, bool kBoth, bool kBlocks>
[[gnu::always_inline]] inline void ScheduleProgram::step_through(ScheduleLanes& lanes) const {
  constexpr std::size_t kWidth = sizeof(Register) / sizeof(double), kCount = kLanes / kWidth;
  double *const slots = lanes.slots.data(), *const ends = lanes.ends.data(),
                *const free = lanes.free.data();
  const double *const durations = lanes.durations.data(), *const p2p = lanes.p2p.data();
  Register travel[2][kCount] = {};
  std::memcpy(travel[1], p2p, sizeof travel[1]);
  for (const Step& step : steps_) {
    double* const clock = free + step.rank * kLanes;
    double* const kept = ends + step.end * kLanes;
    const double* const took = durations + step.duration * kLanes;
    const double *const in0 = slots + step.in[0] * kLanes, *const in1 = slots + step.in[1] * kLanes;
    double *const out0 = slots + step.out[0] * kLanes, *const out1 = slots + step.out[1] * kLanes;
    const Register *const travel0 = travel[step.travels[0]],
                          *const travel1 = travel[step.travels[1]],
                          *const held = travel[step.sends];
    const auto advance = [&](std::size_t k) __attribute__((always_inline)) {
      const std::size_t at = kWidth * k;
      Register start, ready, end;
      std::memcpy(&start, clock + at, sizeof start);
      std::memcpy(&ready, in0 + at, sizeof ready);
      start = start < ready ? ready : start;
      if constexpr (kBoth) {
        std::memcpy(&ready, in1 + at, sizeof ready);
        start = start < ready ? ready : start;
      }
      std::memcpy(&end, took + at, sizeof end);
      end += start;
      std::memcpy(kept + at, &end, sizeof end);
      ready = end + travel0[k];
      std::memcpy(out0 + at, &ready, sizeof ready);
      if constexpr (kBoth) {
        ready = end + travel1[k];
        std::memcpy(out1 + at, &ready, sizeof ready);
      }
      if constexpr (kBlocks) end += held[k];
      std::memcpy(clock + at, &end, sizeof end);
    };
    [&]<std::size_t... k>(std::index_sequence<k...>) __attribute__((always_inline)) {
      (advance(k), ...);
    }
    (std::make_index_sequence<kCount>{});
  }
}

#if defined(__x86_64__)
namespace {
using Four = double __attribute__((vector_size(32)));
bool has_wide_registers() {
  static const bool has = __builtin_cpu_supports("avx") != 0;
  return has;
}
}  // namespace

template <std::size_t kLanes, bool kBoth, bool kBlocks>
[[gnu::target("avx")]] void ScheduleProgram::run_steps_wide(ScheduleLanes& lanes) const {
  step_through<Four, kLanes, kBoth, kBlocks>(lanes);
}
#endif

template <std::size_t kTwos, bool kBoth, bool kBlocks>
void ScheduleProgram::run_steps(ScheduleLanes& lanes) const {
#if defined(__x86_64__)
  if constexpr (kTwos % 2 == 0) {
    if (has_wide_registers()) return run_steps_wide<2 * kTwos, kBoth, kBlocks>(lanes);
  }
#endif
  step_through<Two, 2 * kTwos, kBoth, kBlocks>(lanes);
}

template <std::size_t kTwos>
void ScheduleProgram::run(ScheduleLanes& lanes) const {
  constexpr std::size_t kLanes = 2 * kTwos;
  lanes.slots.resize(std::max(lanes.slots.size(), slots_ * kLanes));
  lanes.ends.resize(std::max(lanes.ends.size(), kept_ * kLanes));
  std::fill_n(lanes.slots.begin(), kLanes, 0.0);
  lanes.free.assign(static_cast<std::size_t>(s_.pp) * kLanes, 0.0);
  const bool blocks = lanes.p2p_blocks && s_.pp > 1;
  if (s_.overlap) {
    blocks ? run_steps<kTwos, true, true>(lanes) : run_steps<kTwos, true, false>(lanes);
  } else {
    blocks ? run_steps<kTwos, false, true>(lanes) : run_steps<kTwos, false, false>(lanes);
  }
}

template <std::size_t kTwos>
std::array<double, 2 * kTwos> ScheduleProgram::periods(const ScheduleLanes& lanes) const {
  constexpr std::size_t kLanes = 2 * kTwos;
  std::array<double, kLanes> result;
  result.fill(-1);
  if (period_steps_ == 0) return result;
  const std::size_t period = period_steps_ * kLanes;
  const auto row = [&](std::size_t rank) {
    return &lanes.ends[steps_[of_rank_[rank][window_]].end * kLanes];
  };
  Two expected[kTwos];
  decltype(expected[0] != expected[0]) differs[kTwos] = {};
  for (std::size_t k = 0; k < kTwos; ++k)
    expected[k] = load_two(row(0) + period + 2 * k) - load_two(row(0) + 2 * k);
  for (std::size_t rank = 0; rank < of_rank_.size(); ++rank) {
    const double* const end = row(rank) + 2 * period;
    for (const double* ends = row(rank); ends != end; ends += kLanes) {
      [&]<std::size_t... k>(std::index_sequence<k...>) {
        ((differs[k] |= load_two(ends + period + 2 * k) - load_two(ends + 2 * k) != expected[k]),
         ...);
      }
      (std::make_index_sequence<kTwos>{});
    }
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (differs[lane / 2][lane % 2] == 0) result[lane] = expected[lane / 2][lane % 2];
  return result;
}

const ScheduleProgram& ScheduleWalker::program(const ScheduleShape& s) {
  constexpr std::size_t kKept = std::size_t{1} << 20;  // steps
  auto& slot = programs_[{s.pp, s.vpp, s.microbatches, s.group, s.overlap}];
  if (slot) return *slot;
  if (kept_ > kKept) {
    programs_.clear();
    kept_ = 0;
    return program(s);
  }
  slot = std::make_unique<ScheduleProgram>(s);
  kept_ += slot->size();
  return *slot;
}

namespace {

/// What is not there repeats the last.
void fill(ScheduleLanes& lanes, std::size_t count, std::span<const ScheduleTimes> t) {
  const std::size_t stages = t[0].forward.size();
  lanes.p2p_blocks = t[0].p2p_blocks;
  lanes.p2p.resize(count);
  lanes.durations.resize((2 * stages + t[0].both.size()) * count);
  for (std::size_t lane = 0; lane < count; ++lane) {
    const ScheduleTimes& own = t[std::min(lane, t.size() - 1)];
    lanes.p2p[lane] = own.p2p;
    double* to = &lanes.durations[lane];
    for (const auto* list : {&own.forward, &own.backward, &own.both}) {
      for (const double duration : *list) {
        *to = duration;
        to += count;
      }
    }
  }
}

}  // namespace

template <std::size_t kTwos>
void ScheduleWalker::side_by_side(const ScheduleShape& s, std::span<const ScheduleTimes> t,
                                  std::span<Walk> out, bool totals) {
  constexpr std::size_t kLanes = 2 * kTwos;
  fill(lanes_, kLanes, t);
  std::array<bool, kLanes> done{};
  std::size_t left = t.size();
  const int group = s.vpp == 1 ? 1 : s.group;
  // warm-up, a transient that grows with the depth, three periods to compare, cool-down
  int few = s.vpp == 1 ? s.pp + s.pp / 2 + 5 : 5 * group + s.microbatches % group;
  for (; few < s.microbatches; few += few / group * group) {
    ScheduleShape shorter = s;
    shorter.microbatches = few;
    const ScheduleProgram& p = program(shorter);
    if (!p.complete()) break;
    p.run<kTwos>(lanes_);
    const std::array<double, kLanes> periods = p.periods<kTwos>(lanes_);
    for (std::size_t i = 0; i < t.size(); ++i) {
      if (done[i] || periods[i] < 0) continue;
      p.walk(t[i], &lanes_.ends[i], kLanes, (s.microbatches - few) / group, periods[i], totals,
             out[i]);
      done[i] = true;
      --left;
    }
    if (left == 0) return;
  }
  const ScheduleProgram& p = program(s);
  if (p.complete()) p.run<kTwos>(lanes_);
  for (std::size_t i = 0; i < t.size(); ++i) {
    if (done[i]) continue;
    if (p.complete()) {
      p.walk(t[i], &lanes_.ends[i], kLanes, 0, 0, totals, out[i]);
    } else {
      out[i] = moecast::walk(s, t[i]);
    }
  }
}

void ScheduleWalker::walk(const ScheduleShape& s, std::span<const ScheduleTimes> t,
                          std::span<Walk> out, bool totals) {
  for (std::size_t first = 0; first < t.size(); first += kMostLanes) {
    const std::size_t count = std::min(kMostLanes, t.size() - first);
    const auto times = t.subspan(first, count);
    const auto walks = out.subspan(first, count);
    if (count > 4) {
      side_by_side<kMostLanes / 2>(s, times, walks, totals);
    } else {
      count > 2 ? side_by_side<2>(s, times, walks, totals)
                : side_by_side<1>(s, times, walks, totals);
    }
  }
}

Walk ScheduleWalker::walk(const ScheduleShape& s, const ScheduleTimes& t, bool totals) {
  Walk w;
  walk(s, {&t, 1}, {&w, 1}, totals);
  return w;
}

}  // namespace moecast
