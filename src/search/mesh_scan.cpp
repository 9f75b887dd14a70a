#include "search/mesh_scan.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>

namespace moecast {
namespace {

std::size_t rules() { return rule_table().size(); }
enum Reason : std::uint8_t { kNoPlan, kMemory, kMoreThanNeeded, kTooFar, kReasons };
constexpr const char* kReasonNames[kReasons] = {"no pipeline split", "memory",
                                                "recomputes or offloads more than needed",
                                                "expert groups span too many NVLink domains"};

/// Bounds differ between no overlap, EP overlap, and shared experts beside the exchanges.
std::size_t time_variant(const OverlapChoice& o) { return o.overlap ? 1 : o.shared ? 2 : 0; }
constexpr std::size_t kTimeVariants = 3;

bool fits_before(const Space& s, const Survivor& a, const Survivor& b) {
  if (const auto x = first_of_fit_order(s, a), y = first_of_fit_order(s, b); x != y) return x < y;
  return std::tuple(fit_order(s, a), a.inner.recompute) <
         std::tuple(fit_order(s, b), b.inner.recompute);
}

bool nearer(const Shortfall& a, const Shortfall& b) {
  if (!a.any || !b.any) return a.any;
  return std::tuple(a.over, place_of(a.mesh, a.inner)) <
         std::tuple(b.over, place_of(b.mesh, b.inner));
}

}  // namespace

Scan::Scan() : broken(rules() + kReasons, 0) {}

void Scan::add(const Space& s, Scan&& other) {
  legal += other.legal;
  evaluated += other.evaluated;
  fit += other.fit;
  if (other.any_fit && (!any_fit || fits_before(s, other.first_fit, first_fit)))
    first_fit = other.first_fit;
  any_fit = any_fit || other.any_fit;
  if (nearer(other.nearest, nearest)) nearest = other.nearest;
  for (std::size_t i = 0; i < broken.size(); ++i) broken[i] += other.broken[i];
  const auto append = [](auto& to, auto&& from) {
    if (to.empty()) {
      to = std::move(from);
    } else {
      to.insert(to.end(), from.begin(), from.end());
    }
  };
  append(survivors, std::move(other.survivors));
  append(steps, std::move(other.steps));
}

std::map<std::string, std::uint64_t> Scan::rejected() const {
  std::map<std::string, std::uint64_t> named;
  for (std::size_t i = 0; i < broken.size(); ++i) {
    if (broken[i] == 0) continue;
    named[i < rules() ? std::string(rule_table()[i].id) : kReasonNames[i - rules()]] += broken[i];
  }
  return named;
}

MeshScan::MeshScan(const SearchRequest& request, const Problem& p, const Space& s)
    : request_(request),
      p_(p),
      s_(s),
      evaluator_(p),
      legality_(p),
      rules_(s, legality_),
      leanest_(leanest(s.recomputes)),
      every_set_(s.recomputes.size()),
      more_(s.recomputes.size()),
      known_(s.dispatchers.size()) {
  std::iota(every_set_.begin(), every_set_.end(), std::size_t{0});
  for (std::size_t a = 0; a < s.recomputes.size(); ++a) {
    for (std::size_t b = 0; b < s.recomputes.size(); ++b) {
      if (recomputes_more(s.recomputes[b], s.recomputes[a]))
        more_[a].push_back(static_cast<std::uint16_t>(b));
    }
  }
  for (std::size_t g = 0; g < s.graphs.size(); ++g) {
    InnerIndex i;
    i.graph = static_cast<std::uint16_t>(g);
    graphs_.push_back(graph_use(candidate(s, 0, i)));
  }
}

void MeshScan::scan(std::uint32_t mesh) {
  mesh_ = mesh;
  if (const int rule = rules_.refusing_mesh(mesh); rule >= 0) {
    reject(static_cast<std::size_t>(rule), s_.inner_size());
    return;
  }
  const Layout& l = s_.meshes[mesh];
  if (request_.max_ep_domains > 0 &&
      p_.cluster.span(1, l.etp * l.ep).domains > request_.max_ep_domains) {
    reject(rules() + kTooFar, s_.inner_size());
    return;
  }
  rules_.enter(mesh);
  evaluator_.trim();
  for (Known& k : known_) k.shard = nullptr;
  const std::uint64_t per_offload = s_.inner_size() / s_.offloads.size();
  bool fits = false;
  for (std::uint16_t offload = 0; offload < s_.offloads.size(); ++offload) {
    if (fits) {  // offload comes last: it is not asked where something fits without
      reject(rules() + kMoreThanNeeded, per_offload);
      continue;
    }
    start(offload);
    if (leanest_fits(offload)) {
      fits = true;
      every_choice(offload);
    } else {
      reject(rules() + kMemory, per_offload - scanned_);
    }
  }
  if (fits && request_.exhaustive) simulate();
}

/// The exact steps of what fits, while its tables are at hand.
void MeshScan::simulate() {
  layouts_.clear();
  for (std::size_t i = result_.steps.size(); i < result_.survivors.size(); ++i)
    layouts_.push_back(candidate(s_, mesh_, result_.survivors[i].inner));
  result_.steps.resize(result_.survivors.size());
  evaluator_.steps(layouts_, std::span(result_.steps).last(layouts_.size()));
}

void MeshScan::start(std::uint16_t offload) {
  InnerIndex i;
  i.offload = offload;
  tables_ = evaluator_.mesh(candidate(s_, mesh_, i));
  const std::size_t variants = 2 * s_.recomputes.size();
  const std::size_t ranks = tables_ != nullptr ? tables_->pipeline->fullest.size() : 0;
  for (Known& k : known_) {
    k.ranks.resize(std::max(k.ranks.size(), variants * ranks));
    k.ranks_known.assign(variants, 0);
    k.bounds.assign(kTimeVariants * s_.recomputes.size(), -1);
  }
}

/// Overlap and graphs only add memory: when no dispatcher and recompute set fits without them,
/// nothing fits.
bool MeshScan::leanest_fits(std::uint16_t offload) {
  scanned_ = 0;
  if (tables_ == nullptr) return false;
  double state = 0;
  for (const RankState& s : tables_->states) state = std::max(state, s.total());
  // when the model state alone is too much, one choice is enough to say by how much
  const bool hopeless = reserved_bytes(p_, *tables_, state) > p_.system().gpu.hbm_capacity.value;
  InnerIndex i;
  i.offload = offload;
  for (i.dispatcher = 0; i.dispatcher < (hopeless ? 1 : s_.dispatchers.size()); ++i.dispatcher) {
    const bool refused = std::any_of(leanest_.begin(), leanest_.end(), [&](std::size_t r) {
      i.recompute = static_cast<std::uint16_t>(r);
      return rules_.refusing(i) >= 0;
    });
    for (const std::size_t r : refused ? every_set_ : leanest_) {  // a part of it may be legal
      i.recompute = static_cast<std::uint16_t>(r);
      if (rules_.refusing(i) >= 0) continue;
      double reserved = 0;
      const double missing = over(i, reserved);
      if (missing <= 0) {
        scanned_ = 0;  // all of them are assessed one by one
        return true;
      }
      ++scanned_;
      misses(i, missing);
      if (hopeless) break;
    }
  }
  result_.legal += scanned_;
  result_.evaluated += scanned_;
  reject(rules() + kMemory, scanned_);
  return false;
}

/// Counts everything below this point of the loops under the rule that refuses it.
bool MeshScan::refused(Level level, const InnerIndex& i, std::uint64_t candidates) {
  const int rule = rules_.refusing(level, i);
  if (rule >= 0) reject(static_cast<std::size_t>(rule), candidates);
  return rule >= 0;
}

void MeshScan::every_choice(std::uint16_t offload) {
  const std::uint64_t per_graph = s_.recomputes.size();
  const std::uint64_t per_overlap = per_graph * s_.graphs.size();
  const std::uint64_t per_dispatcher = per_overlap * s_.overlaps.size();
  InnerIndex i;
  i.offload = offload;
  if (refused(Level::offload, i, per_dispatcher * s_.dispatchers.size())) return;
  for (i.dispatcher = 0; i.dispatcher < s_.dispatchers.size(); ++i.dispatcher) {
    if (refused(Level::dispatcher, i, per_dispatcher)) continue;
    too_big_.assign(s_.recomputes.size(), 0);
    for (i.overlap = 0; i.overlap < s_.overlaps.size(); ++i.overlap) {
      if (refused(Level::overlap, i, per_overlap)) continue;
      for (i.graph = 0; i.graph < s_.graphs.size(); ++i.graph) {
        if (!refused(Level::graph, i, per_graph)) every_recompute(i);
      }
      i.graph = 0;
    }
    i.overlap = 0;
  }
}

/// From least to most: a set is only ranked when no part of it is enough.
void MeshScan::every_recompute(InnerIndex i) {
  pointless_.assign(s_.recomputes.size(), 0);
  rules_.enter(i);
  for (i.recompute = 0; i.recompute < s_.recomputes.size(); ++i.recompute) {
    if (pointless_[i.recompute] != 0) {
      reject(rules() + kMoreThanNeeded);
    } else if (too_big_[i.recompute] != 0) {  // overlap and graphs only add memory
      reject(rules() + kMemory);
    } else if (const int rule = rules_.refusing_recompute(i); rule >= 0) {
      reject(static_cast<std::size_t>(rule));
    } else {
      assess(i);
    }
  }
}

void MeshScan::assess(const InnerIndex& i) {
  ++result_.legal;
  if (tables_ == nullptr) {
    reject(rules() + kNoPlan);
    return;
  }
  ++result_.evaluated;
  double reserved = 0;
  const double missing = over(i, reserved);
  const double least = bound(i);
  if (missing > 0) {
    too_big_[i.recompute] = i.overlap == 0 && i.graph == 0 ? 1 : 0;
    reject(rules() + kMemory);
    misses(i, missing);
    return;
  }
  ++result_.fit;
  for (const std::uint16_t more : more_[i.recompute]) pointless_[more] = 1;
  const Survivor c{mesh_, i, least, reserved};
  if (!result_.any_fit || fits_before(s_, c, result_.first_fit)) result_.first_fit = c;
  result_.any_fit = true;
  result_.survivors.push_back(c);
}

void MeshScan::misses(const InnerIndex& i, double over) {
  const Shortfall miss{true, mesh_, i, over};
  if (nearer(miss, result_.nearest)) result_.nearest = miss;
}

/// Bytes that do not fit on the fullest rank (negative: bytes left), and what it reserves.
double MeshScan::over(const InnerIndex& i, double& reserved) {
  const RankActivations* ranks = activations(i);
  const GraphUse graphs = graphs_[i.graph];
  double peak = 0;
  for (std::size_t r = 0; r < tables_->pipeline->fullest.size(); ++r) {
    double pinned = 0;
    if (asks_graph_pools(ranks[r], graphs)) {
      const Layout l = candidate(s_, mesh_, i);
      pinned = LayoutMemory(p_, l, shard(i, l), *tables_)
                   .pinned_by_graphs(tables_->pipeline->fullest[r], graphs.modules);
    }
    peak = std::max(peak, allocated(ranks[r], graphs, pinned));
  }
  reserved = reserved_bytes(p_, *tables_, peak);
  return reserved + request_.min_headroom_gib * kBytesPerGib - p_.system().gpu.hbm_capacity.value;
}

const ShardTables& MeshScan::shard(const InnerIndex& i, const Layout& l) {
  const ShardTables*& known = known_[i.dispatcher].shard;
  if (known == nullptr) known = &evaluator_.shard(l);
  return *known;
}

const RankActivations* MeshScan::activations(const InnerIndex& i) {
  const std::vector<int>& fullest = tables_->pipeline->fullest;
  Known& k = known_[i.dispatcher];
  const std::size_t variant =
      i.recompute + (s_.overlaps[i.overlap].overlap ? s_.recomputes.size() : 0);
  RankActivations* const ranks = &k.ranks[variant * fullest.size()];
  if (k.ranks_known[variant] == 0) {
    const Layout l = candidate(s_, mesh_, i);
    const LayoutMemory memory(p_, l, shard(i, l), *tables_);
    for (std::size_t r = 0; r < fullest.size(); ++r) memory.activations(fullest[r], ranks[r]);
    k.ranks_known[variant] = 1;
  }
  return ranks;
}

double MeshScan::bound(const InnerIndex& i) {
  double& known =
      known_[i.dispatcher]
          .bounds[time_variant(s_.overlaps[i.overlap]) * s_.recomputes.size() + i.recompute];
  if (known < 0) {
    const Layout l = candidate(s_, mesh_, i);
    known = evaluator_.bound(l, shard(i, l), *tables_);
  }
  return known;
}

}  // namespace moecast
