#include "estimate/pair_seconds.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace moecast {
namespace {

constexpr double kNever = -1e30;  ///< seconds: before everything, and finite
enum Way : std::uint8_t { kForward, kBackward };
enum PairStream : std::uint8_t { kCompute, kComm };

PairNode node_of(const IssuedOp& op, bool later) {
  switch (op.part) {
    case Part::combine:
      return kCombineNode;
    case Part::dispatch:
      return kDispatchNode;
    case Part::attention:
      return later ? kAttentionWgrad : kAttentionNode;
    case Part::experts:
      break;
  }
  return later ? kExpertsWgrad : kExpertsNode;
}

void between(const PairMap::Clocks& a, const PairMap::Clocks& b, double share, bool started,
             PairMap::Clocks& to) {
  to.host = a.host + share * (b.host - a.host);
  to.stream = a.stream + share * (b.stream - a.stream);
  if (started) to.started = a.started + share * (b.started - a.started);
}
void between(const PairMap& a, const PairMap& b, double share, bool started, PairMap& to) {
  to.any = a.any;
  between(a.from_host, b.from_host, share, started, to.from_host);
  between(a.from_stream, b.from_stream, share, started, to.from_stream);
}

bool equal(double a, double b) { return std::abs(a - b) <= 1e-13 * std::abs(b); }
bool equal(const PairMap::Clocks& a, const PairMap::Clocks& b) {
  return equal(a.host, b.host) && equal(a.stream, b.stream) && equal(a.started, b.started);
}
bool equal(const PairMap& a, const PairMap& b) {
  return equal(a.from_host, b.from_host) && equal(a.from_stream, b.from_stream);
}

}  // namespace

PairRules::PairRules(const Problem& p, const IssueFlags& flags)
    : compute_per_share(p.profile.calibration.contention_compute_per_sm * flags.sm_share),
      contention_comm(p.profile.calibration.contention_comm),
      host_factor(p.profile.calibration.host_overlap_factor),
      sync_cost(p.profile.calibration.sync_us * 1e-6 * p.ablation.host),
      kernel_floor(p.profile.calibration.kernel_floor_us * 1e-6),
      single_queue(p.features.single_queue),
      delay(flags.delay_wgrad) {}

namespace {

void run_op(const PairRules& rules, const PairOp& op, double gpu, PairMap::Clocks& at) {
  const double start = std::max(at.stream, at.host + op.first);
  at.host += op.host;
  at.started = start;
  at.stream = std::max(start + gpu, at.host + std::min(gpu, rules.kernel_floor));
  if (op.sync) at.host = std::max(at.host, at.stream) + rules.sync_cost;
}

bool on_comm_stream(PairNode node) { return node == kCombineNode || node == kDispatchNode; }

PairMap map_of(const PairRules& rules, const std::vector<PairOp>& ops, PairNode node, double slow) {
  const double exchange = on_comm_stream(node) ? rules.contention_comm : slow;
  PairMap map{!ops.empty(), {0, kNever, kNever}, {kNever, 0, kNever}};
  for (const PairOp& op : ops) {
    const double gpu = op.gpu * (op.exchange ? exchange : slow);
    run_op(rules, op, gpu, map.from_host);
    run_op(rules, op, gpu, map.from_stream);
  }
  return map;
}

/// Every clock is a convex function of the slowdown (a latest of sums), but for kernels that it
/// makes longer than the kernel floor: where the middle lies on the chord, all of it does.
PairNodeMaps node_maps(const PairRules& rules, const std::vector<PairOp>& ops, PairNode which) {
  const double slowest = 1 + rules.compute_per_share;
  PairNodeMaps n{map_of(rules, ops, which, 1), map_of(rules, ops, which, slowest), {}};
  const bool crosses = std::any_of(ops.begin(), ops.end(), [&](const PairOp& op) {
    return op.gpu < rules.kernel_floor && op.gpu * slowest > rules.kernel_floor;
  });
  const PairMap middle = map_of(rules, ops, which, 1 + rules.compute_per_share / 2);
  PairMap chord;
  between(n.least, n.most, 0.5, true, chord);
  if (crosses || !equal(chord, middle)) n.bent = ops;
  return n;
}

std::uint64_t hash_of(const std::vector<PairOp>& ops, bool comm) {
  std::uint64_t hash = comm ? 1 : 0;
  const auto add = [&](double value) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  for (const PairOp& op : ops) {
    add(op.gpu);
    add(op.host + (op.sync ? 1 : 0));
  }
  return hash >> 1;  // never the largest number
}

}  // namespace

const PairNodeMaps& PairNodes::of(const PairRules& rules, const std::vector<PairOp>& ops,
                                  PairNode which) {
  const bool comm = on_comm_stream(which);
  const auto [first, fresh] = by_hash_.at(hash_of(ops, comm));
  for (const Known* k = fresh ? nullptr : first; k != nullptr; k = k->next)
    if (k->comm == comm && k->ops == ops) return k->maps;
  known_.push_back({ops, comm, node_maps(rules, ops, which), fresh ? nullptr : first});
  first = &known_.back();
  return known_.back().maps;
}

PairDirection::PairDirection(const PairRules& rules, const std::vector<IssuedOp>& ops,
                             bool backward, PairNodes& nodes)
    : known_(nodes) {
  for (auto& list : nodes.lists) list.clear();
  ops_.reserve(ops.size());
  for (const IssuedOp& op : ops) {
    const double host = op.host * rules.host_factor;
    const PairOp packed{op.gpu, host, host / std::max(1.0f, op.launches), op.sync,
                        op.cls == OpClass::ep_comm};
    (packed.exchange ? exchange_ : compute_) += op.gpu;
    nodes.lists[node_of(op, backward && rules.delay && op.wgrad)].push_back(packed);
    ops_.push_back(packed);
  }
  for (std::size_t i = 0; i < kWhole; ++i)
    nodes_[i] = &nodes.of(rules, nodes.lists[i], static_cast<PairNode>(i));
}

void PairDirection::at(const PairRules& rules, PairNode node, double slow, double share,
                       PairMap& to) const {
  if (node == kWhole && whole_ == nullptr) whole_ = &known_.of(rules, ops_, kWhole);
  const PairNodeMaps& n = node == kWhole ? *whole_ : *nodes_[node];
  if (!n.bent.empty()) {
    to = map_of(rules, n.bent, node, slow);
  } else {
    between(n.least, n.most, share, rules.single_queue, to);
  }
}

namespace {

using PairMaps = std::array<PairMap, kWhole>;

/// The clocks while a pair of stages runs. `kSingleQueue`: a kernel waits for the start of those
/// issued before it.
template <bool kSingleQueue>
class PairClocks {
 public:
  void pair(const PairMaps& f, const PairMaps& b) {
    node(b[kCombineNode], kBackward, kComm, true);
    node(f[kAttentionNode], kForward, kCompute, true);
    node(b[kExpertsNode], kBackward, kCompute, true);
    node(f[kDispatchNode], kForward, kComm, true);
    node(b[kExpertsWgrad], kBackward, kCompute, false);
    node(b[kDispatchNode], kBackward, kComm, true);
    node(f[kExpertsNode], kForward, kCompute, true);
    node(f[kCombineNode], kForward, kComm, true);
    node(b[kAttentionNode], kBackward, kCompute, true);
    node(b[kAttentionWgrad], kBackward, kCompute, false);
  }

  void alone(const PairMap& layer, Way way) {
    free_[kCompute] = std::max({free_[kCompute], free_[kComm], done_[way]});
    node(layer, way, kCompute, true);
    free_[kComm] = free_[kCompute];
  }

  [[nodiscard]] double end() const { return std::max(free_[kCompute], free_[kComm]); }

 private:
  void node(const PairMap& m, Way way, PairStream stream, bool ordered) {
    if (!m.any) return;
    double& free = free_[stream];
    if (ordered) free = std::max(free, done_[way]);
    if constexpr (kSingleQueue) free = std::max(free, started_);
    const double host = host_, at = free;
    host_ = std::max(host + m.from_host.host, at + m.from_stream.host);
    free = std::max(host + m.from_host.stream, at + m.from_stream.stream);
    if constexpr (kSingleQueue)
      started_ = std::max(host + m.from_host.started, at + m.from_stream.started);
    if (ordered) done_[way] = free;
  }

  double host_ = 0, free_[2] = {0, 0}, done_[2] = {0, 0}, started_ = 0;
};

/// Layers of a stage, one after the other, with their maps.
class Layers {
 public:
  Layers(const PairRules& rules, double slow, std::span<const PairRun> runs)
      : rules_(rules),
        slow_(slow),
        share_(slow > 1 ? (slow - 1) / rules.compute_per_share : 0),
        run_(runs.begin()),
        end_(runs.end()) {
    left_ = run_ != end_ ? run_->count : 0;
  }
  [[nodiscard]] int left() const { return left_; }  ///< in this run; 0: no more
  void nodes(Way way, PairMaps& maps) const {       // weight gradients are in the backward alone
    for (std::size_t i = 0; i < (way == kForward ? kExpertsWgrad : kWhole); ++i)
      run_->layer->at(rules_, static_cast<PairNode>(i), slow_, share_, maps[i]);
  }
  void whole(PairMap& map) const { run_->layer->at(rules_, kWhole, slow_, share_, map); }
  void pass(int layers) {
    left_ -= layers;
    if (left_ == 0 && ++run_ != end_) left_ = run_->count;
  }

 private:
  const PairRules& rules_;
  double slow_, share_;
  std::span<const PairRun>::iterator run_, end_;
  int left_ = 0;
};

template <typename Clocks>
void run_alone(Clocks& clocks, Layers& layers, Way way) {
  for (; layers.left() > 0; layers.pass(layers.left())) {
    PairMap whole;
    layers.whole(whole);
    for (int i = 0; i < layers.left(); ++i) clocks.alone(whole, way);
  }
}

template <typename Clocks>
double run(Clocks clocks, Layers f, Layers b) {
  PairMaps first, second;
  while (f.left() > 0 && b.left() > 0) {
    const int both = std::min(f.left(), b.left());
    f.nodes(kForward, first);
    b.nodes(kBackward, second);
    for (int i = 0; i < both; ++i) clocks.pair(first, second);
    f.pass(both);
    b.pass(both);
  }
  run_alone(clocks, f, kForward);
  run_alone(clocks, b, kBackward);
  return clocks.end();
}

}  // namespace

double pair_seconds(const PairRules& rules, std::span<const PairRun> forward,
                    std::span<const PairRun> backward) {
  double compute = 0, exchange = 0;
  for (const auto& runs : {forward, backward}) {
    for (const PairRun& run : runs) {
      compute += run.count * run.layer->compute();
      exchange += run.count * run.layer->exchange();
    }
  }
  const double beside = compute > 0 ? std::min(1.0, exchange / compute) : 0;
  const double slow = 1 + rules.compute_per_share * beside;
  const Layers f(rules, slow, forward), b(rules, slow, backward);
  return rules.single_queue ? run(PairClocks<true>{}, f, b) : run(PairClocks<false>{}, f, b);
}

}  // namespace moecast
