// EP overlap: two in-order streams (compute: A and E; communication: D and C with unpermute and
// residual), one issuing thread. Megatron's fixed order for a layer pair (f = forward microbatch, b
// = backward microbatch):
//   C_b, A_f, E_b, D_f, [E_dw], D_b, E_f, C_f, A_b, [A_dw]
// A node starts when its stream is free and the previous node of its own microbatch is done; wgrad
// nodes wait for the stream only.
#include <algorithm>

#include "estimate/chunk_time.hpp"

namespace moecast {
namespace {

enum class Direction : unsigned char { forward, backward };

struct Interval {
  double start, end;
};

class TwoStreams {
 public:
  TwoStreams(const Problem& p, double compute_slow, double comm_slow, std::vector<Placed>* record)
      : calibration_(p.profile.calibration),
        sync_cost_(calibration_.sync_us * 1e-6 * p.ablation.host),
        single_queue_(p.features.single_queue),
        compute_slow_(compute_slow),
        comm_slow_(comm_slow),
        record_(record) {}

  /// Runs the operations of `ops` that `pick` selects as one node.
  template <typename Pick>
  void node(const std::vector<IssuedOp>& ops, Direction direction, bool comm_stream, bool ordered,
            Pick pick) {
    double& own = done_[static_cast<int>(direction)];
    double& stream = free_[comm_stream ? 1 : 0];
    bool first = true;
    for (const IssuedOp& op : ops) {
      if (!pick(op)) continue;
      const double gpu_time =
          op.gpu * (comm_stream && op.cls == OpClass::ep_comm ? comm_slow_ : compute_slow_);
      const double host_time = op.host * calibration_.host_overlap_factor;
      const double launched = host_ + host_time / std::max(1.0f, op.launches);
      host_ += host_time;
      double start = std::max(stream, launched);
      if (first && ordered) start = std::max(start, own);
      if (single_queue_) start = std::max(start, last_start_);
      last_start_ = start;
      first = false;
      stream = std::max(start + gpu_time,
                        host_ + std::min(gpu_time, calibration_.kernel_floor_us * 1e-6));
      if (op.sync) host_ = std::max(host_, stream) + sync_cost_;
      // outside the pairs an exchange runs alone on the compute stream: it is exposed all the same
      const bool side = comm_stream || op.cls == OpClass::ep_comm;
      if (gpu_time > 0) busy_[side ? 1 : 0].push_back({start, start + gpu_time});
      count(op, gpu_time, comm_stream);
      if (record_ != nullptr) {
        record_->push_back(
            {op.name, comm_stream, direction == Direction::backward, start, gpu_time});
      }
    }
    if (!first && ordered) own = stream;
  }

  /// Ends the pair: wall time, and what of each stream nothing hides.
  Spent finish() {
    spent_.duration = std::max(free_[0], free_[1]);
    // busy time of the communication stream while the compute stream idles
    double exposed = 0;
    std::size_t i = 0;
    for (const Interval& c : busy_[1]) {
      double at = c.start;
      while (i < busy_[0].size() && busy_[0][i].end <= at) ++i;
      for (std::size_t j = i; at < c.end; ++j) {
        const double next = j < busy_[0].size() ? std::min(busy_[0][j].start, c.end) : c.end;
        exposed += std::max(0.0, next - at);
        at = j < busy_[0].size() ? std::max(at, std::min(c.end, busy_[0][j].end)) : c.end;
        if (j >= busy_[0].size()) break;
      }
    }
    // unpermute and residual on the communication stream are compute; what is exposed of the stream
    // splits by their share
    const double comm = spent_.gpu[static_cast<std::size_t>(OpClass::ep_comm)];
    const double total = comm + side_compute_;
    const double side_exposed = total > 0 ? exposed * side_compute_ / total : 0;
    spent_.ep_exposed = exposed - side_exposed;
    hidden_compute_ = side_compute_ - side_exposed;
    return spent_;
  }
  [[nodiscard]] double hidden_compute() const { return hidden_compute_; }

  /// Compute-stream-only work outside the pairs (embedding, head, unpaired layers run through here
  /// too).
  void serial(const std::vector<IssuedOp>& ops, Direction direction) {
    const double both = std::max({free_[0], free_[1], done_[static_cast<int>(direction)]});
    free_[0] = free_[1] = both;
    node(ops, direction, false, true, [](const IssuedOp&) { return true; });
    free_[1] = free_[0];
  }

 private:
  void count(const IssuedOp& op, double gpu_time, bool comm_stream) {
    spent_.gpu[static_cast<std::size_t>(op.cls)] += gpu_time;
    if (op.recomputed) spent_.recompute += gpu_time;
    if (op.cls != OpClass::ep_comm && is_communication(op.cls)) spent_.other_exposed += gpu_time;
    if (comm_stream && !is_communication(op.cls)) side_compute_ += gpu_time;
  }

  const Calibration& calibration_;
  double sync_cost_;
  bool single_queue_;  ///< one hardware queue: kernels of all streams start in the order of issue
  double compute_slow_, comm_slow_, last_start_ = 0;
  std::vector<Placed>* record_;
  double host_ = 0, free_[2] = {0, 0}, done_[2] = {0, 0};
  double side_compute_ = 0, hidden_compute_ = 0;
  std::vector<Interval> busy_[2];
  Spent spent_;
};

struct Totals {
  double compute = 0, comm = 0;
};
Totals totals(const IssuedStage& stage, bool forward) {
  Totals t;
  for (const IssuedLayer* layer : stage) {
    for (const IssuedOp& op : forward ? layer->forward : layer->backward) {
      (op.cls == OpClass::ep_comm ? t.comm : t.compute) += op.gpu;
    }
  }
  return t;
}

void pair(TwoStreams& s, const IssuedLayer& f, const IssuedLayer& b, bool delay) {
  const auto part = [](Part wanted) {
    return [wanted](const IssuedOp& op) { return op.part == wanted; };
  };
  const auto dgrad = [delay](Part wanted) {
    return
        [delay, wanted](const IssuedOp& op) { return op.part == wanted && !(delay && op.wgrad); };
  };
  const auto wgrad = [](Part wanted) {
    return [wanted](const IssuedOp& op) { return op.part == wanted && op.wgrad; };
  };
  using enum Direction;
  s.node(b.backward, backward, true, true, part(Part::combine));
  s.node(f.forward, forward, false, true, part(Part::attention));
  s.node(b.backward, backward, false, true, dgrad(Part::experts));
  s.node(f.forward, forward, true, true, part(Part::dispatch));
  if (delay) s.node(b.backward, backward, false, false, wgrad(Part::experts));
  s.node(b.backward, backward, true, true, part(Part::dispatch));
  s.node(f.forward, forward, false, true, part(Part::experts));
  s.node(f.forward, forward, true, true, part(Part::combine));
  s.node(b.backward, backward, false, true, dgrad(Part::attention));
  if (delay) s.node(b.backward, backward, false, false, wgrad(Part::attention));
}

}  // namespace

Spent overlapped_time(const Problem& p, const IssuedStage& forward, const IssuedStage& backward,
                      const IssueFlags& flags, std::vector<Placed>* record) {
  const Totals f = totals(forward, true), b = totals(backward, false);
  const double compute = f.compute + b.compute, comm = f.comm + b.comm;
  // the share of compute that really has communication beside it is slowed by the SMs that the
  // kernels hold
  const double beside = compute > 0 ? std::min(1.0, comm / compute) : 0;
  const double slow = 1 + p.profile.calibration.contention_compute_per_sm * flags.sm_share * beside;
  TwoStreams streams(p, slow, comm > 0 ? p.profile.calibration.contention_comm : 1, record);
  const std::size_t pairs = std::min(forward.size(), backward.size());
  for (std::size_t i = 0; i < pairs; ++i) {
    pair(streams, *forward[i], *backward[backward.size() - 1 - i], flags.delay_wgrad);
  }
  for (std::size_t i = pairs; i < forward.size(); ++i)
    streams.serial(forward[i]->forward, Direction::forward);
  for (std::size_t i = pairs; i < backward.size(); ++i) {
    streams.serial(backward[backward.size() - 1 - i]->backward, Direction::backward);
  }
  Spent s = streams.finish();
  // compute that ran on the communication stream in the shadow of the compute stream takes no wall
  // time of its own
  double hidden = streams.hidden_compute();
  for (const OpClass side : {OpClass::permute, OpClass::memory_bound}) {
    double& time = s.gpu[static_cast<std::size_t>(side)];
    const double taken = std::min(hidden, time);
    time -= taken;
    hidden -= taken;
  }
  return s;
}

}  // namespace moecast
