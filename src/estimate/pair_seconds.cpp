#include "estimate/pair_seconds.hpp"

#include <limits>

namespace moecast {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
enum Way : std::uint8_t { kForward, kBackward };
enum Stream : std::uint8_t { kCompute, kComm };

}  // namespace

PairSeconds::PairSeconds(const Problem& p, const IssueFlags& flags,
                         const std::vector<IssuedLayer>& layers)
    : compute_per_share_(p.profile.calibration.contention_compute_per_sm * flags.sm_share),
      contention_comm_(p.profile.calibration.contention_comm),
      host_factor_(p.profile.calibration.host_overlap_factor),
      sync_cost_(p.profile.calibration.sync_us * 1e-6 * p.ablation.host),
      kernel_floor_(p.profile.calibration.kernel_floor_us * 1e-6),
      single_queue_(p.features.single_queue),
      delay_(flags.delay_wgrad) {
  for (const IssuedLayer& layer : layers) {
    forward_.push_back(direction(layer.forward, false));
    backward_.push_back(direction(layer.backward, true));
  }
}

PairSeconds::Direction PairSeconds::direction(const std::vector<IssuedOp>& ops,
                                              bool backward) const {
  Direction d;
  for (const IssuedOp& op : ops) {
    const double host = op.host * host_factor_;
    const Op packed{op.gpu, host, host / std::max(1.0f, op.launches), op.sync,
                    op.cls == OpClass::ep_comm};
    (packed.exchange ? d.exchange : d.compute) += op.gpu;
    const bool later = backward && delay_ && op.wgrad;
    const Node node = op.part == Part::combine     ? combine
                      : op.part == Part::dispatch  ? dispatch
                      : op.part == Part::attention ? later ? attention_wgrad : attention
                      : later                      ? experts_wgrad
                                                   : experts;
    d.ops[node].push_back(packed);
    d.ops[kWhole].push_back(packed);
  }
  return d;
}

PairSeconds::Clocks PairSeconds::run(const std::vector<Op>& ops, Clocks at, double slow,
                                     double slow_exchange) const {
  for (const Op& op : ops) {
    const double gpu = op.gpu * (op.exchange ? slow_exchange : slow);
    const double start = std::max(at.stream, at.host + op.first);
    at.host += op.host;
    at.started = start;
    at.stream = std::max(start + gpu, at.host + std::min(gpu, kernel_floor_));
    if (op.sync) at.host = std::max(at.host, at.stream) + sync_cost_;
  }
  return at;
}

const PairSeconds::Direction& PairSeconds::mapped(Direction& d) const {
  if (d.slow == slow_) return d;
  for (std::size_t i = 0; i < kLists; ++i) {
    const bool comm = i == combine || i == dispatch;
    const double exchange = comm ? slow_exchange_ : slow_;
    d.maps[i] = {!d.ops[i].empty(), run(d.ops[i], {0, kNever, kNever}, slow_, exchange),
                 run(d.ops[i], {kNever, 0, kNever}, slow_, exchange)};
  }
  d.slow = slow_;
  return d;
}

void PairSeconds::node(State& s, const Map& m, int direction, int stream, bool ordered) const {
  if (!m.any) return;
  double& free = s.free[stream];
  if (ordered) free = std::max(free, s.done[direction]);
  if (single_queue_) free = std::max(free, s.started);
  const double host = s.host, at = free;
  s.host = std::max(host + m.from_host.host, at + m.from_stream.host);
  free = std::max(host + m.from_host.stream, at + m.from_stream.stream);
  s.started = std::max(host + m.from_host.started, at + m.from_stream.started);
  if (ordered) s.done[direction] = free;
}

void PairSeconds::pair(State& s, const Direction& f, const Direction& b) const {
  node(s, b.maps[combine], kBackward, kComm, true);
  node(s, f.maps[attention], kForward, kCompute, true);
  node(s, b.maps[experts], kBackward, kCompute, true);
  node(s, f.maps[dispatch], kForward, kComm, true);
  node(s, b.maps[experts_wgrad], kBackward, kCompute, false);
  node(s, b.maps[dispatch], kBackward, kComm, true);
  node(s, f.maps[experts], kForward, kCompute, true);
  node(s, f.maps[combine], kForward, kComm, true);
  node(s, b.maps[attention], kBackward, kCompute, true);
  node(s, b.maps[attention_wgrad], kBackward, kCompute, false);
}

void PairSeconds::alone(State& s, const Direction& d, int direction) const {
  s.free[kCompute] = std::max({s.free[kCompute], s.free[kComm], s.done[direction]});
  node(s, d.maps[kWhole], direction, kCompute, true);
  s.free[kComm] = s.free[kCompute];
}

double PairSeconds::seconds(const std::vector<IssuedRun>& forward,
                            const std::vector<IssuedRun>& backward) {
  double compute = 0, exchange = 0;
  const auto add = [&](const std::vector<IssuedRun>& runs, const std::vector<Direction>& of) {
    for (const IssuedRun& run : runs) {
      compute += run.count * of[run.layer].compute;
      exchange += run.count * of[run.layer].exchange;
    }
  };
  add(forward, forward_);
  add(backward, backward_);
  const double beside = compute > 0 ? std::min(1.0, exchange / compute) : 0;
  slow_ = 1 + compute_per_share_ * beside;
  slow_exchange_ = exchange > 0 ? contention_comm_ : 1;

  State s;
  auto f = forward.begin();
  auto b = backward.rbegin();
  int f_left = forward.empty() ? 0 : f->count, b_left = backward.empty() ? 0 : b->count;
  while (f != forward.end() && b != backward.rend()) {
    const Direction &first = mapped(forward_[f->layer]), &second = mapped(backward_[b->layer]);
    const int both = std::min(f_left, b_left);
    for (int i = 0; i < both; ++i) pair(s, first, second);
    f_left -= both;
    b_left -= both;
    if (f_left == 0 && ++f != forward.end()) f_left = f->count;
    if (b_left == 0 && ++b != backward.rend()) b_left = b->count;
  }
  for (; f != forward.end(); f_left = ++f != forward.end() ? f->count : 0) {
    for (const Direction& d = mapped(forward_[f->layer]); f_left > 0; --f_left)
      alone(s, d, kForward);
  }
  for (; b != backward.rend(); b_left = ++b != backward.rend() ? b->count : 0) {
    for (const Direction& d = mapped(backward_[b->layer]); b_left > 0; --b_left)
      alone(s, d, kBackward);
  }
  return std::max(s.free[kCompute], s.free[kComm]);
}

}  // namespace moecast
