#include "estimate/schedule_program.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moecast {

ScheduleTimes on_grid(const ScheduleShape& s, ScheduleTimes t) {
  const auto sum = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0);
  };
  const double pieces = sum(t.forward) + sum(t.backward) + sum(t.both) + 2 * t.p2p * s.pp * s.vpp;
  const double total = pieces * s.microbatches;
  if (!(total > 0) || !std::isfinite(total)) return t;
  const int exponent = 52 - std::ilogb(total) - 1;
  const double up = std::ldexp(1.0, exponent), down = std::ldexp(1.0, -exponent);
  const auto round = [&](double& x) { x = std::nearbyint(x * up) * down; };
  for (auto* v : {&t.forward, &t.backward, &t.both}) std::for_each(v->begin(), v->end(), round);
  round(t.p2p);
  return t;
}

ScheduleProgram::ScheduleProgram(const ScheduleShape& s) : s_(s) {
  std::vector<std::vector<ScheduleOp>> orders;
  for (int r = 0; r < s.pp; ++r) orders.push_back(rank_order(s, r));
  const auto ranks = static_cast<std::size_t>(s.pp);
  of_rank_.resize(ranks);
  last_backward_.assign(ranks, std::vector<std::uint32_t>(static_cast<std::size_t>(s.vpp), 0));
  std::vector<char> written(slot(true, s.pp * s.vpp - 1, s.microbatches - 1) + 1u, 0);
  written[0] = 1;
  std::vector<std::size_t> next(ranks, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < s.pp; ++r) {
      const auto i = static_cast<std::size_t>(r);
      while (next[i] < orders[i].size()) {
        add(r, orders[i][next[i]]);
        const Step& step = steps_.back();
        if (written[step.forward_in] == 0 || written[step.backward_in] == 0) {
          steps_.pop_back();
          break;
        }
        written[step.forward_out] = written[step.backward_out] = 1;
        const auto number = static_cast<std::uint32_t>(steps_.size() - 1);
        of_rank_[i].push_back(number);
        const ScheduleOp& op = orders[i][next[i]];
        if (op.kind != ScheduleOp::Kind::forward)
          last_backward_[i][static_cast<std::size_t>(op.backward_chunk)] = number;
        ++next[i];
        moved = true;
      }
    }
  }
  complete_ = true;
  for (std::size_t r = 0; r < ranks; ++r) complete_ = complete_ && next[r] == orders[r].size();
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
}

/// Slots 0 and 1 are never waited for and never read.
std::uint32_t ScheduleProgram::slot(bool backward, int stage, int microbatch) const {
  const int stages = s_.pp * s_.vpp;
  return static_cast<std::uint32_t>(2 + ((backward ? stages : 0) + stage) * s_.microbatches +
                                    microbatch);
}

void ScheduleProgram::add(int r, const ScheduleOp& op) {
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
    step.forward_in = stage > 0 ? slot(false, stage, op.forward_microbatch) : 0;
    const bool last = stage + 1 == stages;
    step.forward_out = last ? slot(true, stage, op.forward_microbatch)
                            : slot(false, stage + 1, op.forward_microbatch);
    step.forward_travels = !last && s_.pp > 1;
    step.sends = !last;
  }
  if (backward) {
    const int stage = op.backward_chunk * s_.pp + r;
    step.backward_in = slot(true, stage, op.backward_microbatch);
    if (stage > 0) step.backward_out = slot(true, stage - 1, op.backward_microbatch);
    step.backward_travels = stage > 0 && s_.pp > 1;
    step.sends = step.sends || stage > 0;
  }
  steps_.push_back(step);
}

void ScheduleProgram::run(const ScheduleTimes& t, std::vector<double>& slots,
                          std::vector<double>& ends) const {
  std::vector<double> durations = t.forward;
  durations.insert(durations.end(), t.backward.begin(), t.backward.end());
  durations.insert(durations.end(), t.both.begin(), t.both.end());
  slots.resize(std::max<std::size_t>(slots.size(),
                                     slot(true, s_.pp * s_.vpp - 1, s_.microbatches - 1) + 1u));
  ends.resize(steps_.size());
  slots[0] = 0;
  std::vector<double> free(static_cast<std::size_t>(s_.pp), 0.0);
  const double travel[2] = {0, t.p2p};
  const bool blocks = t.p2p_blocks && s_.pp > 1;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const double start =
        std::max(free[step.rank], std::max(slots[step.forward_in], slots[step.backward_in]));
    const double end = start + durations[step.duration];
    ends[i] = end;
    slots[step.forward_out] = end + travel[step.forward_travels ? 1 : 0];
    slots[step.backward_out] = end + travel[step.backward_travels ? 1 : 0];
    free[step.rank] = blocks && step.sends ? end + t.p2p : end;
  }
}

double ScheduleProgram::period(const std::vector<double>& ends) const {
  if (period_steps_ == 0) return -1;
  const auto end = [&](std::size_t rank, std::size_t i) { return ends[of_rank_[rank][i]]; };
  const double period = end(0, window_ + period_steps_) - end(0, window_);
  for (std::size_t rank = 0; rank < of_rank_.size(); ++rank) {
    for (std::size_t i = window_; i < window_ + 2 * period_steps_; ++i) {
      if (end(rank, i + period_steps_) - end(rank, i) != period) return -1;
    }
  }
  return period;
}

Walk ScheduleProgram::walk(const ScheduleTimes& t, const std::vector<double>& ends, int more,
                           double period, bool totals) const {
  const auto stages = static_cast<std::size_t>(s_.pp * s_.vpp);
  const auto duration = [&](const Step& step) {
    const std::size_t d = step.duration;
    return d < stages       ? t.forward[d]
           : d < 2 * stages ? t.backward[d - stages]
                            : t.both[d - 2 * stages];
  };
  const double later = more > 0 ? more * period : 0;
  Walk w;
  for (std::size_t rank = 0; rank < of_rank_.size(); ++rank) {
    const auto& own = of_rank_[rank];
    RankTimeline& line = w.ranks.emplace_back();
    const auto count = [&](std::size_t first, std::size_t last, int times) {
      for (std::size_t i = first; i < last; ++i) {
        const Step& step = steps_[own[i]];
        line.busy += times * duration(step);
        if (t.p2p_blocks && step.sends && s_.pp > 1) line.p2p_blocked += times * t.p2p;
      }
    };
    if (totals) count(0, own.size(), 1);
    if (totals && more > 0) count(window_, window_ + period_steps_, more);
    const Step& last = steps_[own.back()];
    line.end = ends[own.back()] + later;
    if (t.p2p_blocks && last.sends && s_.pp > 1) line.end += t.p2p;
    for (const std::uint32_t step : last_backward_[rank])
      line.last_backward_end.push_back(ends[step] + later);
    w.makespan = std::max(w.makespan, line.end);
  }
  return w;
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

Walk ScheduleWalker::walk(const ScheduleShape& s, const ScheduleTimes& t, bool totals) {
  const int group = s.vpp == 1 ? 1 : s.group;
  // warm-up, a transient that grows with the depth, three periods to compare, cool-down
  int few = s.vpp == 1 ? s.pp + s.pp / 2 + 5 : 6 * group + s.microbatches % group;
  for (; few < s.microbatches; few += few / group * group) {
    ScheduleShape shorter = s;
    shorter.microbatches = few;
    const ScheduleProgram& p = program(shorter);
    if (!p.complete()) break;
    p.run(t, slots_, ends_);
    if (const double period = p.period(ends_); period >= 0)
      return p.walk(t, ends_, (s.microbatches - few) / group, period, totals);
  }
  const ScheduleProgram& p = program(s);
  if (!p.complete()) return moecast::walk(s, t);
  p.run(t, slots_, ends_);
  return p.walk(t, ends_, 0, 0, totals);
}

}  // namespace moecast
