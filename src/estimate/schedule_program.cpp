#include "estimate/schedule_program.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace moecast {

ExactGrid::ExactGrid(double work) {
  if (!(work > 0) || !std::isfinite(work)) return;
  const int exponent = 52 - std::ilogb(work) - 1;
  up_ = std::ldexp(1.0, exponent);
  down_ = std::ldexp(1.0, -exponent);
}

double ExactGrid::nearest(double seconds) const {
  constexpr double kWhole = 0x1p52;  // doubles from here to its double are the whole numbers
  return up_ > 0 ? ((seconds * up_ + kWhole) - kWhole) * down_ : seconds;
}

ScheduleTimes on_grid(const ScheduleShape& s, ScheduleTimes t) {
  const auto sum = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0);
  };
  const ExactGrid grid(microbatch_work(s, sum(t.forward), sum(t.backward), sum(t.both), t.p2p) *
                       s.microbatches);
  for (auto* v : {&t.forward, &t.backward, &t.both})
    for (double& x : *v) x = grid.nearest(x);
  t.p2p = grid.nearest(t.p2p);
  return t;
}

ScheduleProgram::ScheduleProgram(const ScheduleShape& s) : s_(s) {
  order_steps();
  if (!complete_) return;
  // Three periods as late in the steady state of all ranks as the groups are whole. Counted from
  // the beginning of its order, no piece depends on one that lies more than a period before it.
  const int group = s.vpp == 1 ? 1 : s.group;
  const int whole = s.microbatches / group * group * s.vpp;
  const int warmup = warmup_count(s, 0), per_microbatch = s.overlap ? 1 : 2;
  const int period = per_microbatch * group * s.vpp;
  const int window = per_microbatch * whole - (s.overlap ? 0 : warmup) - 3 * period;
  if (window >= warmup) {
    window_ = static_cast<std::size_t>(window);
    period_steps_ = static_cast<std::size_t>(period);
  }
  reuse_slots();
  keep_ends();
}

/// The ranks in turn: the clocks of one hardly ever wait for those just computed.
void ScheduleProgram::order_steps() {
  std::vector<std::vector<ScheduleOp>> orders;
  for (int r = 0; r < s_.pp; ++r) orders.push_back(rank_order(s_, r));
  const auto ranks = static_cast<std::size_t>(s_.pp);
  of_rank_.resize(ranks);
  last_backward_.assign(ranks, std::vector<std::uint32_t>(static_cast<std::size_t>(s_.vpp), 0));
  slots_ = slot(true, s_.pp * s_.vpp - 1, s_.microbatches - 1) + 1u;
  std::vector<char> written(slots_, 0);
  written[0] = 1;
  std::vector<std::size_t> next(ranks, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < s_.pp; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (next[i] == orders[i].size()) continue;
      const ScheduleOp& op = orders[i][next[i]];
      const Step step = step_of(r, op);
      if (written[step.in[0]] == 0 || written[step.in[1]] == 0) continue;
      written[step.out[0]] = written[step.out[1]] = 1;
      const auto number = static_cast<std::uint32_t>(steps_.size());
      steps_.push_back(step);
      of_rank_[i].push_back(number);
      if (op.kind != ScheduleOp::Kind::forward)
        last_backward_[i][static_cast<std::size_t>(op.backward_chunk)] = number;
      ++next[i];
      moved = true;
    }
  }
  complete_ = true;
  for (std::size_t r = 0; r < ranks; ++r) complete_ = complete_ && next[r] == orders[r].size();
}

/// Slots 0 and 1 are never waited for and never read.
std::uint32_t ScheduleProgram::slot(bool backward, int stage, int microbatch) const {
  const int stages = s_.pp * s_.vpp;
  return static_cast<std::uint32_t>(2 + ((backward ? stages : 0) + stage) * s_.microbatches +
                                    microbatch);
}

ScheduleProgram::Step ScheduleProgram::step_of(int r, const ScheduleOp& op) const {
  const int stages = s_.pp * s_.vpp;
  const bool forward = op.kind != ScheduleOp::Kind::backward,
             backward = op.kind != ScheduleOp::Kind::forward;
  const int f = r * s_.vpp + op.forward_chunk, b = r * s_.vpp + op.backward_chunk;
  Step step;
  step.rank = static_cast<std::uint32_t>(r);
  step.duration =
      static_cast<std::uint32_t>(forward && backward ? 2 * stages + f * s_.vpp + op.backward_chunk
                                 : forward           ? f
                                                     : stages + b);
  if (forward) {
    const int stage = op.forward_chunk * s_.pp + r;
    step.in[0] = stage > 0 ? slot(false, stage, op.forward_microbatch) : 0;
    const bool last = stage + 1 == stages;
    step.out[0] = last ? slot(true, stage, op.forward_microbatch)
                       : slot(false, stage + 1, op.forward_microbatch);
    step.travels[0] = !last && s_.pp > 1;
    step.sends = !last;
  }
  if (backward) {
    const std::size_t at = s_.overlap ? 1 : 0;
    const int stage = op.backward_chunk * s_.pp + r;
    step.in[at] = slot(true, stage, op.backward_microbatch);
    if (stage > 0) step.out[at] = slot(true, stage - 1, op.backward_microbatch);
    step.travels[at] = stage > 0 && s_.pp > 1;
    step.sends = step.sends != 0 || stage > 0;
  }
  return step;
}

/// A slot is read once: the next one that is written takes its place.
void ScheduleProgram::reuse_slots() {
  std::vector<std::uint32_t> place(slots_, 0), unused;
  slots_ = 2;
  for (Step& step : steps_) {
    for (std::uint32_t& in : step.in) {
      if (in == 0) continue;
      in = place[in];
      unused.push_back(in);
    }
    for (std::uint32_t& out : step.out) {
      if (out == 1) continue;
      if (unused.empty()) unused.push_back(static_cast<std::uint32_t>(slots_++));
      out = place[out] = unused.back();
      unused.pop_back();
    }
  }
}

/// Of every rank those from the window on, one after the other.
void ScheduleProgram::keep_ends() {
  for (const auto& own : of_rank_) {
    for (std::size_t i = window_; i < own.size(); ++i)
      steps_[own[i]].end = static_cast<std::uint32_t>(kept_++);
  }
}

void ScheduleProgram::walk(const ScheduleTimes& t, const double* ends, std::size_t stride, int more,
                           double period, bool totals, Walk& out) const {
  const auto stages = static_cast<std::size_t>(s_.pp * s_.vpp);
  const auto duration = [&](const Step& step) {
    const std::size_t d = step.duration;
    return d < stages       ? t.forward[d]
           : d < 2 * stages ? t.backward[d - stages]
                            : t.both[d - 2 * stages];
  };
  const auto end = [&](std::uint32_t step) { return ends[steps_[step].end * stride]; };
  const double later = more > 0 ? more * period : 0;
  out.makespan = 0;
  out.ranks.resize(of_rank_.size());
  for (std::size_t rank = 0; rank < of_rank_.size(); ++rank) {
    const auto& own = of_rank_[rank];
    RankTimeline& line = out.ranks[rank];
    line.busy = line.p2p_blocked = 0;
    const auto count = [&](std::size_t first, std::size_t last, int times) {
      for (std::size_t i = first; i < last; ++i) {
        const Step& step = steps_[own[i]];
        line.busy += times * duration(step);
        if (t.p2p_blocks && step.sends != 0 && s_.pp > 1) line.p2p_blocked += times * t.p2p;
      }
    };
    if (totals) count(0, own.size(), 1);
    if (totals && more > 0) count(window_, window_ + period_steps_, more);
    line.end = end(own.back()) + later;
    if (t.p2p_blocks && steps_[own.back()].sends != 0 && s_.pp > 1) line.end += t.p2p;
    line.last_backward_end.clear();
    for (const std::uint32_t step : last_backward_[rank])
      line.last_backward_end.push_back(end(step) + later);
    out.makespan = std::max(out.makespan, line.end);
  }
}

}  // namespace moecast
