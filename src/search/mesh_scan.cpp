#include "search/mesh_scan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <tuple>

namespace moecast {
namespace {

std::size_t rules() {
  static const std::size_t count = rule_table().size();
  return count;
}
enum Reason : std::uint8_t { kMemory, kMoreThanNeeded, kTooFar, kReasons };
constexpr const char* kReasonNames[kReasons] = {"memory", "recomputes or offloads more than needed",
                                                "expert groups span too many NVLink domains"};

/// Bounds differ between no overlap, EP overlap, and shared experts beside the exchanges.
std::size_t time_variant(const OverlapChoice& o) { return o.overlap ? 1 : o.shared ? 2 : 0; }
constexpr std::size_t kTimeVariants = 3;

bool fits_before(const Space& s, const Survivor& a, const Survivor& b) {
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

void Scan::add(const Space& s, const Scan& other) {
  legal += other.legal;
  evaluated += other.evaluated;
  fit += other.fit;
  if (other.any_fit && (!any_fit || fits_before(s, other.first_fit, first_fit)))
    first_fit = other.first_fit;
  any_fit = any_fit || other.any_fit;
  if (nearer(other.nearest, nearest)) nearest = other.nearest;
  for (std::size_t i = 0; i < broken.size(); ++i) broken[i] += other.broken[i];
  survivors.insert(survivors.end(), other.survivors.begin(), other.survivors.end());
  steps.insert(steps.end(), other.steps.begin(), other.steps.end());
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
      memory_(p, s, request.min_headroom_gib * kBytesPerGib),
      leanest_(leanest(s.recomputes)),
      every_set_(s.recomputes.size()),
      every_bit_(words_of(s.recomputes.size())),
      more_(s.recomputes.size(), std::vector<ChoiceBits>(every_bit_.size())),
      known_(s.dispatchers.size()) {
  std::iota(every_set_.begin(), every_set_.end(), std::size_t{0});
  for (std::size_t a = 0; a < s.recomputes.size(); ++a) {
    add_bit(every_bit_.data(), a);
    for (std::size_t b = a + 1; b < s.recomputes.size(); ++b)
      if (recomputes_more(s.recomputes[b], s.recomputes[a])) add_bit(more_[a].data(), b);
  }
}

void MeshScan::scan(std::uint32_t mesh) {
  mesh_ = mesh;
  if (const int rule = rules_.refusing_mesh(mesh); rule >= 0) {
    reject(static_cast<std::size_t>(rule), s_.inner_size());
    return;
  }
  layout_ = s_.mesh(mesh);
  const Layout& l = layout_;
  if (request_.max_ep_domains > 0 &&
      p_.cluster.span(1, l.etp * l.ep).domains > request_.max_ep_domains) {
    reject(rules() + kTooFar, s_.inner_size());
    return;
  }
  rules_.enter(mesh);
  if (const std::uint64_t group = shard_group(s_, mesh); group != group_) {
    evaluator_.trim();  // between groups: the tables of one are all asked again
    group_ = group;
  }
  for (Known& k : known_) {
    k.shard = nullptr;
    k.priced = false;
  }
  const std::uint64_t per_offload = s_.inner_size() / s_.offloads.size();
  const auto offloads = static_cast<std::uint16_t>(s_.offloads.size());
  bool fits = false;
  for (std::uint16_t offload = 0; offload < offloads; ++offload) {
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
    layouts_.push_back(candidate(s_, layout_, result_.survivors[i].inner));
  result_.steps.resize(result_.survivors.size());
  evaluator_.steps(layouts_, std::span(result_.steps).last(layouts_.size()));
}

void MeshScan::start(std::uint16_t offload) {
  InnerIndex i;
  i.offload = offload;
  tables_ = evaluator_.mesh(candidate(s_, layout_, i));
  found_.any = false;
}

/// Overlap and graphs only add memory: when no dispatcher and recompute set fits without them,
/// nothing fits.
bool MeshScan::leanest_fits(std::uint16_t offload) {
  scanned_ = 0;
  if (tables_ == nullptr) return false;
  double state = 0;
  for (const RankState& s : tables_->states) state = std::max(state, s.total());
  // when the model state alone is too much, one choice is enough to say by how much (if anybody
  // asks)
  const bool hopeless = reserved_bytes(p_, *tables_, state) > p_.system().gpu.hbm_capacity.value;
  if (!hopeless || !result_.any_fit) memory_.enter(mesh_, layout_, tables_);
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
      if (!(hopeless && result_.any_fit) && fits(i)) {
        scanned_ = 0;  // all of them are assessed one by one
        return true;
      }
      ++scanned_;
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
  for (Known& k : known_) k.bounds.assign(kTimeVariants * s_.recomputes.size(), -1);
  if (refused(Level::offload, i, per_dispatcher * s_.dispatchers.size())) return;
  for (i.dispatcher = 0; i.dispatcher < s_.dispatchers.size(); ++i.dispatcher) {
    if (refused(Level::dispatcher, i, per_dispatcher)) continue;
    too_big_.assign(every_bit_.size(), 0);
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

/// Points of the other axes that refuse and fit the same choices have the same survivors: most
/// graphs change neither.
void MeshScan::every_recompute(InnerIndex i) {
  const InnerRules::Refused& refused = rules_.refused_recomputes(i);
  if (!found_.any || refused.set != found_.refused || !memory_.alike(i, found_.at)) {
    find_surviving(i, refused);
    found_ = {true, i, refused.set};
  }
  for (const std::uint16_t r : surviving_) {
    i.recompute = r;
    survives(i);
  }
  count(refused, memory_.too_big(i));
  if (i.overlap > 0 || i.graph > 0) return;
  for (std::size_t word = 0; word < every_bit_.size(); ++word) {
    too_big_[word] |=
        memory_.too_big(i)[word] & ~refused.any[word] & ~pointless_[word] & every_bit_[word];
  }
}

/// From least to most: a set is only ranked when no part of it is enough.
void MeshScan::find_surviving(InnerIndex i, const InnerRules::Refused& refused) {
  surviving_.clear();
  pointless_.assign(every_bit_.size(), 0);
  for (std::size_t word = 0; word < every_bit_.size(); ++word) {
    const ChoiceBits asked = every_bit_[word] & ~too_big_[word] & ~refused.any[word];
    const ChoiceBits* const misses = memory_.too_big(i) + word;
    for (ChoiceBits left = asked & ~pointless_[word]; left != 0;) {
      i.recompute = static_cast<std::uint16_t>(word * kBitsPerWord +
                                               static_cast<std::size_t>(std::countr_zero(left)));
      left &= left - 1;
      if (fits(i)) {
        surviving_.push_back(i.recompute);
        result_.any_fit = true;
        for (std::size_t w = word; w < every_bit_.size(); ++w)
          pointless_[w] |= more_[i.recompute][w];
      }
      left &= ~pointless_[word];
      if (result_.any_fit) left &= ~*misses;
    }
  }
}

/// Of the recompute choices at one point of the other axes, `misses` do not fit. A choice counts
/// under the first reason to leave it out.
void MeshScan::count(const InnerRules::Refused& refused, const ChoiceBits* misses) {
  const auto bits = [](ChoiceBits set) {
    return set == 0 ? 0 : static_cast<std::uint64_t>(std::popcount(set));
  };
  for (std::size_t word = 0; word < every_bit_.size(); ++word) {
    reject(rules() + kMoreThanNeeded, bits(pointless_[word]));
    ChoiceBits rest = every_bit_[word] & ~pointless_[word];
    reject(rules() + kMemory, bits(rest & too_big_[word]));  // overlap and graphs only add memory
    rest &= ~too_big_[word];
    for (const auto& [rule, choices] : refused.by_rule)
      reject(static_cast<std::size_t>(rule), bits(rest & choices[word]));
    rest &= ~refused.any[word];
    reject(rules() + kMemory, bits(rest & misses[word]));
    result_.legal += bits(rest);
    result_.evaluated += bits(rest);
    result_.fit += bits(rest & ~misses[word]);
  }
}

bool MeshScan::fits(const InnerIndex& i) {
  if (memory_.fits(i, shard(i), result_.any_fit)) return true;
  if (!result_.any_fit) misses(i, memory_.missing(memory_.reserved(i)));
  return false;
}

void MeshScan::survives(const InnerIndex& i) {
  const Survivor c{mesh_, i, bound(i), memory_.reserved(i)};
  const std::uint64_t key = first_of_fit_order(s_, layout_, c);
  if (key < first_fit_key_ || (key == first_fit_key_ && fits_before(s_, c, result_.first_fit))) {
    result_.first_fit = c;
    first_fit_key_ = key;
  }
  if (least_value(request_, c) <= ceiling_) result_.survivors.push_back(c);
}

void MeshScan::give_survivors(std::vector<Survivor>& to) {
  to.insert(to.end(), result_.survivors.begin(), result_.survivors.end());
  result_.survivors.clear();
}

void MeshScan::misses(const InnerIndex& i, double over) {
  const Shortfall miss{true, mesh_, i, over};
  if (nearer(miss, result_.nearest)) result_.nearest = miss;
}

const ShardTables& MeshScan::shard(const InnerIndex& i) {
  const ShardTables*& known = known_[i.dispatcher].shard;
  if (known == nullptr) known = &evaluator_.shard_memory(candidate(s_, layout_, i));
  return *known;
}

double MeshScan::bound(const InnerIndex& i) {
  double& known =
      known_[i.dispatcher]
          .bounds[time_variant(s_.overlaps[i.overlap]) * s_.recomputes.size() + i.recompute];
  if (known < 0) {
    const Layout l = candidate(s_, layout_, i);
    Known& k = known_[i.dispatcher];
    if (!k.priced) k.shard = &evaluator_.shard(l);
    k.priced = true;
    known = evaluator_.bound(l, *k.shard, *tables_);
  }
  return known;
}

}  // namespace moecast
