#include "estimate/schedule.hpp"

#include <algorithm>

namespace moecast {
namespace {

/// Virtual microbatch k of the schedule table: groups of `group` microbatches; inside a group all
/// chunks, inside a chunk all of the group's microbatches. Backward uses the mirrored chunk.
struct Virtual {
  int microbatch = 0, chunk = 0;
};
Virtual table_entry(const ScheduleShape& s, int k) {
  const int per_group = s.group * s.vpp;
  const int group = k / per_group;
  const int first = group * s.group;
  const int size = std::min(s.group, s.microbatches - first);
  const int inside = k - group * per_group;
  return {first + inside % size, inside / size};
}

}  // namespace

int warmup_count(const ScheduleShape& s, int rank) {
  if (s.pp == 1) return s.overlap ? 1 : 0;
  if (s.vpp == 1) return std::min(s.microbatches, s.pp - 1 - rank);
  const int warmup = 2 * (s.pp - rank - 1) + (s.vpp - 1) * s.group + (s.overlap ? 1 : 0);
  return std::min(s.microbatches * s.vpp, warmup);
}

std::vector<ScheduleOp> rank_order(const ScheduleShape& s, int rank) {
  const int total = s.microbatches * s.vpp;
  const int warmup = std::min(total, warmup_count(s, rank));
  std::vector<ScheduleOp> order;
  order.reserve(static_cast<std::size_t>(2 * total));
  const auto forward = [&](int k) {
    const Virtual v = table_entry(s, k);
    order.push_back({ScheduleOp::Kind::forward, v.chunk, v.microbatch, 0, 0});
  };
  const auto backward = [&](int k) {
    const Virtual v = table_entry(s, k);
    order.push_back({ScheduleOp::Kind::backward, 0, 0, s.vpp - 1 - v.chunk, v.microbatch});
  };
  for (int k = 0; k < warmup; ++k) forward(k);
  for (int k = 0; k + warmup < total; ++k) {
    if (s.overlap) {
      const Virtual f = table_entry(s, k + warmup), b = table_entry(s, k);
      order.push_back(
          {ScheduleOp::Kind::both, f.chunk, f.microbatch, s.vpp - 1 - b.chunk, b.microbatch});
    } else {
      forward(k + warmup);
      backward(k);
    }
  }
  for (int k = total - warmup; k < total; ++k) backward(k);
  return order;
}

namespace {

/// State of the walk: which pieces are done, and when their results reach the next stage.
class Walker {
 public:
  Walker(const ScheduleShape& s, const ScheduleTimes& t, const ScheduleVisitor& visit)
      : s_(s),
        t_(t),
        visit_(visit),
        stages_(s.pp * s.vpp),
        forward_ready_(static_cast<std::size_t>(stages_) * s.microbatches, -1.0),
        backward_ready_(static_cast<std::size_t>(stages_) * s.microbatches, -1.0) {
    for (int m = 0; m < s.microbatches; ++m) forward_at(0, m) = 0;
    for (int r = 0; r < s.pp; ++r) {
      orders_.push_back(rank_order(s, r));
      result_.ranks.push_back({});
      result_.ranks.back().last_backward_end.assign(static_cast<std::size_t>(s.vpp), 0.0);
    }
    next_.assign(static_cast<std::size_t>(s.pp), 0);
  }

  Walk run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int r = 0; r < s_.pp; ++r) {
        while (advance(r)) moved = true;
      }
    }
    for (const auto& rank : result_.ranks) result_.makespan = std::max(result_.makespan, rank.end);
    return std::move(result_);
  }

 private:
  double& forward_at(int stage, int m) {
    return forward_ready_[static_cast<std::size_t>(stage) * s_.microbatches + m];
  }
  double& backward_at(int stage, int m) {
    return backward_ready_[static_cast<std::size_t>(stage) * s_.microbatches + m];
  }

  /// Runs the next operation of a rank if its inputs are there.
  bool advance(int r) {
    auto& position = next_[static_cast<std::size_t>(r)];
    const auto& order = orders_[static_cast<std::size_t>(r)];
    if (position == order.size()) return false;
    const ScheduleOp& op = order[position];
    const bool has_forward = op.kind != ScheduleOp::Kind::backward;
    const bool has_backward = op.kind != ScheduleOp::Kind::forward;
    const int fs = op.forward_chunk * s_.pp + r, bs = op.backward_chunk * s_.pp + r;
    RankTimeline& rank = result_.ranks[static_cast<std::size_t>(r)];
    double start = rank.end;
    if (has_forward) {
      const double ready = forward_at(fs, op.forward_microbatch);
      if (ready < 0) return false;
      start = std::max(start, ready);
    }
    if (has_backward) {
      const double ready = backward_at(bs, op.backward_microbatch);
      if (ready < 0) return false;
      start = std::max(start, ready);
    }
    finish(r, op, start, duration(r, op), has_forward ? fs : -1, has_backward ? bs : -1);
    ++position;
    return true;
  }

  double duration(int r, const ScheduleOp& op) const {
    const std::size_t f = static_cast<std::size_t>(r) * s_.vpp + op.forward_chunk;
    const std::size_t b = static_cast<std::size_t>(r) * s_.vpp + op.backward_chunk;
    if (op.kind == ScheduleOp::Kind::forward) return t_.forward[f];
    if (op.kind == ScheduleOp::Kind::backward) return t_.backward[b];
    return t_.both[f * s_.vpp + op.backward_chunk];
  }

  void finish(int r, const ScheduleOp& op, double start, double took, int fs, int bs) {
    RankTimeline& rank = result_.ranks[static_cast<std::size_t>(r)];
    const double end = start + took;
    const double arrival = end + t_.p2p;
    bool sends = false;
    if (fs >= 0) {
      if (fs + 1 < stages_) {
        forward_at(fs + 1, op.forward_microbatch) = s_.pp > 1 ? arrival : end;
        sends = true;
      } else {
        backward_at(fs, op.forward_microbatch) = end;
      }
    }
    if (bs > 0) {
      backward_at(bs - 1, op.backward_microbatch) = s_.pp > 1 ? arrival : end;
      sends = true;
    }
    if (bs >= 0) rank.last_backward_end[static_cast<std::size_t>(op.backward_chunk)] = end;
    rank.busy += took;
    rank.end = end;
    if (t_.p2p_blocks && sends && s_.pp > 1) {
      rank.end += t_.p2p;
      rank.p2p_blocked += t_.p2p;
    }
    if (visit_) visit_(r, op, start, end);
  }

  const ScheduleShape& s_;
  const ScheduleTimes& t_;
  const ScheduleVisitor& visit_;
  int stages_;
  std::vector<double> forward_ready_, backward_ready_;
  std::vector<std::vector<ScheduleOp>> orders_;
  std::vector<std::size_t> next_;
  Walk result_;
};

}  // namespace

Walk walk(const ScheduleShape& s, const ScheduleTimes& t, const ScheduleVisitor& visit) {
  return Walker(s, t, visit).run();
}

double makespan_bound(const ScheduleShape& s, const ScheduleTimes& t) {
  double bound = 0, before = 0;
  for (int r = 0; r < s.pp; ++r) {
    double busy = 0;
    for (int c = 0; c < s.vpp; ++c) {
      const std::size_t i = static_cast<std::size_t>(r) * s.vpp + c;
      busy += t.forward[i] + t.backward[i];
    }
    bound = std::max(bound, before + s.microbatches * busy);
    // chunk 0 of the ranks before must run before the first forward arrives here, and after the
    // last backward left
    const std::size_t first = static_cast<std::size_t>(r) * s.vpp;
    before += t.forward[first] + t.backward[first] + 2 * t.p2p;
  }
  return bound;
}

}  // namespace moecast
