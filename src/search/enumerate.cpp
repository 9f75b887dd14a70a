#include "search/enumerate.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <thread>
#include <tuple>

#include "estimate/legal.hpp"

namespace moecast {

void parallel_for(std::size_t items, int threads, const std::function<void(int, std::size_t)>& f) {
  std::atomic<std::size_t> next{0};
  const auto work = [&](int thread) {
    for (std::size_t i = next++; i < items; i = next++) f(thread, i);
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(work, t);
  work(0);
  for (auto& t : pool) t.join();
}

FitOrder fit_order(const Space& s, const Survivor& c) {
  const Layout& l = s.meshes[c.mesh];
  const RecomputeChoice& r = s.recomputes[c.inner.recompute];
  const OffloadChoice& o = s.offloads[c.inner.offload];
  const auto n = [](auto value) { return static_cast<std::int64_t>(value); };
  return {n(!o.modules.empty() || o.optimizer_fraction > 0),
          n(r.granularity == RecomputeGranularity::full),
          n(l.tp * l.cp * l.pp),
          n(std::popcount(r.modules.bits)),
          n(l.vpp),
          n(l.ep * l.etp),
          n(l.micro_batch_size),
          n(c.mesh),
          n(c.inner.dispatcher),
          n(c.inner.overlap),
          n(c.inner.graph),
          n(c.inner.offload)};
}

namespace {

constexpr int kNoPlan = -1, kMemory = -2, kMoreThanNeeded = -3;

/// What one mesh contributes.
struct MeshResult {
  std::uint64_t legal = 0, evaluated = 0, fit = 0;
  std::vector<Survivor> survivors;
  bool any_fit = false;
  Survivor first_fit;
  Shortfall nearest;
  std::map<int, std::uint64_t> broken;  ///< rule index, or a reason below
};

/// The inner axes in the order of their loops. A rule is asked once all axes whose knobs it reads
/// are fixed, and then refuses the whole rest of the loops.
enum Level { kOffload, kDispatcher, kOverlap, kGraph, kRecompute, kLevels };

int level_of(std::string_view key) {
  if (key.starts_with("recompute.")) return kRecompute;
  if (key.starts_with("cuda_graph.")) return kGraph;
  if (key.starts_with("moe.dispatcher")) return kDispatcher;
  if (key == "moe.capacity_factor" || key == "moe.routing") return kOffload;
  if (key.starts_with("moe.")) return kOverlap;
  return key.starts_with("offload.") ? kOffload : -1;
}

struct InnerRule {
  bool (*broken)(const RuleInput&);
  int index;
};

/// Rules that read a knob of an inner axis, by their last one. The others were answered once for
/// the mesh (tested: together they are the whole table).
const std::array<std::vector<InnerRule>, kLevels>& inner_rules() {
  static const auto lists = [] {
    std::array<std::vector<InnerRule>, kLevels> by_level;
    const auto& table = rule_table();
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table[i].severity != Severity::error || !table[i].holds_for(Flavour::bridge)) continue;
      int level = -1;
      for (const std::string& key : keys_of(table[i])) level = std::max(level, level_of(key));
      if (level >= 0)
        by_level[static_cast<std::size_t>(level)].push_back({table[i].broken, static_cast<int>(i)});
    }
    return by_level;
  }();
  return lists;
}

int first_broken(Level level, const RuleInput& input) {
  for (const InnerRule& rule : inner_rules()[level]) {
    if (rule.broken(input)) return rule.index;
  }
  return -1;
}

int first_broken_inner_rule(const RuleInput& input) {
  for (int level = 0; level < kLevels; ++level) {
    if (const int rule = first_broken(static_cast<Level>(level), input); rule >= 0) return rule;
  }
  return -1;
}

class MeshScan {
 public:
  MeshScan(const SearchRequest& r, const Problem& p, const Space& s, Evaluator& e,
           std::uint32_t mesh, Legality& legality)
      : request_(r),
        p_(p),
        s_(s),
        evaluator_(e),
        mesh_(mesh),
        legality_(legality),
        leanest_(leanest(s.recomputes)) {}

  MeshResult run() {
    if (const int rule = legality_.first_broken(s_.meshes[mesh_]); rule >= 0) {
      result_.broken[rule] += s_.inner_size();
      return std::move(result_);
    }
    const std::uint64_t per_offload = s_.inner_size() / s_.offloads.size();
    bool fits = false;
    for (std::size_t offload = 0; offload < s_.offloads.size(); ++offload) {
      if (fits) {  // offload comes last: it is not asked where something fits without
        result_.broken[kMoreThanNeeded] += per_offload;
      } else if (leanest_fits(offload)) {
        fits = true;
        every_choice(offload);
      } else {
        result_.broken[kMemory] += per_offload - scanned_;
      }
    }
    return std::move(result_);
  }

 private:
  /// Overlap and graphs only add memory: when no dispatcher and recompute set fits without them,
  /// nothing fits.
  bool leanest_fits(std::size_t offload) {
    scanned_ = 0;
    const Layout lean = candidate(s_, mesh_, {0, 0, 0, 0, offload});
    const double state = reserved_bytes(p_, lean, evaluator_.least_state(lean));
    // when the model state alone is too much, one choice is enough to say by how much
    const bool hopeless = state > p_.system().gpu.hbm_capacity.value;
    bool any = false;
    const std::size_t dispatchers = hopeless ? 1 : s_.dispatchers.size();
    for (std::size_t d = 0; d < dispatchers && !any; ++d) {
      for (const std::size_t r : leanest_) {
        const InnerIndex i{d, 0, 0, r, offload};
        const Layout l = candidate(s_, mesh_, i);
        if (first_broken_inner_rule(legality_.input(l)) >= 0) continue;
        const Outcome o = evaluator_.evaluate(l, Depth::bound);
        if (o.status == Outcome::Status::no_plan) continue;
        const double over = shortfall(o);
        any = over <= 0;
        if (any) break;
        ++scanned_;
        ++result_.legal;
        ++result_.evaluated;
        ++result_.broken[kMemory];
        if (!result_.nearest.any || over < result_.nearest.over)
          result_.nearest = {true, mesh_, i, over};
        if (hopeless) return false;
      }
    }
    if (any) {  // counted again below, one by one
      result_.legal -= scanned_;
      result_.evaluated -= scanned_;
      result_.broken[kMemory] -= scanned_;
    }
    return any;
  }

  /// Counts everything below this point of the loops under the rule that refuses it.
  bool refused(Level level, const InnerIndex& i, std::uint64_t candidates) {
    const int rule = first_broken(level, legality_.input(candidate(s_, mesh_, i)));
    if (rule >= 0) result_.broken[rule] += candidates;
    return rule >= 0;
  }

  void every_choice(std::size_t offload) {
    const std::uint64_t per_graph = s_.recomputes.size();
    const std::uint64_t per_overlap = per_graph * s_.graphs.size();
    const std::uint64_t per_dispatcher = per_overlap * s_.overlaps.size();
    InnerIndex i;
    i.offload = offload;
    if (refused(kOffload, i, per_dispatcher * s_.dispatchers.size())) return;
    for (i.dispatcher = 0; i.dispatcher < s_.dispatchers.size(); ++i.dispatcher) {
      i.overlap = i.graph = i.recompute = 0;
      if (refused(kDispatcher, i, per_dispatcher)) continue;
      too_big_.assign(s_.recomputes.size(), false);
      for (i.overlap = 0; i.overlap < s_.overlaps.size(); ++i.overlap) {
        i.graph = i.recompute = 0;
        if (refused(kOverlap, i, per_overlap)) continue;
        for (i.graph = 0; i.graph < s_.graphs.size(); ++i.graph) {
          i.recompute = 0;
          if (refused(kGraph, i, per_graph)) continue;
          enough_.clear();
          for (i.recompute = 0; i.recompute < s_.recomputes.size(); ++i.recompute) assess(i);
        }
      }
    }
  }

  /// Recomputation from least to most: a set is only ranked when no part of it is enough.
  void assess(const InnerIndex& i) {
    const bool pointless = std::any_of(enough_.begin(), enough_.end(), [&](std::size_t enough) {
      return recomputes_more(s_.recomputes[i.recompute], s_.recomputes[enough]);
    });
    if (pointless) {
      ++result_.broken[kMoreThanNeeded];
      return;
    }
    if (too_big_[i.recompute]) {  // overlap and graphs only add memory
      ++result_.broken[kMemory];
      return;
    }
    const Layout l = candidate(s_, mesh_, i);
    if (const int rule = first_broken(kRecompute, legality_.input(l)); rule >= 0) {
      ++result_.broken[rule];
      return;
    }
    ++result_.legal;
    const Outcome o = evaluator_.evaluate(l, Depth::bound);
    if (o.status == Outcome::Status::no_plan) {
      ++result_.broken[kNoPlan];
      return;
    }
    ++result_.evaluated;
    const double over = shortfall(o);
    if (over > 0) {
      too_big_[i.recompute] = i.overlap == 0 && i.graph == 0;
      ++result_.broken[kMemory];
      if (!result_.nearest.any || over < result_.nearest.over)
        result_.nearest = {true, mesh_, i, over};
      return;
    }
    ++result_.fit;
    enough_.push_back(i.recompute);
    const Survivor c{mesh_, i, o.bound, o.reserved};
    if (!result_.any_fit || fit_order(s_, c) < fit_order(s_, result_.first_fit))
      result_.first_fit = c;
    result_.any_fit = true;
    result_.survivors.push_back(c);
  }

  [[nodiscard]] double shortfall(const Outcome& o) const {
    return o.reserved + request_.min_headroom_gib * kBytesPerGib -
           p_.system().gpu.hbm_capacity.value;
  }

  const SearchRequest& request_;
  const Problem& p_;
  const Space& s_;
  Evaluator& evaluator_;
  std::uint32_t mesh_;
  Legality& legality_;
  MeshResult result_;
  std::vector<std::size_t> leanest_;
  std::vector<bool>
      too_big_;  ///< recompute choices that do not fit with the first overlap and graph choice
  std::uint64_t scanned_ = 0;  ///< candidates that the lean pass assessed
  std::vector<std::size_t>
      enough_;  ///< recompute choices that fit already, for this dispatcher, overlap and graph
};

std::string reason_name(int broken) {
  switch (broken) {
    case kNoPlan:
      return "no pipeline split";
    case kMemory:
      return "memory";
    case kMoreThanNeeded:
      return "recomputes or offloads more than needed";
    default:
      return std::string(rule_table()[static_cast<std::size_t>(broken)].id);
  }
}

void merge(Enumeration& all, const Space& s, MeshResult&& m) {
  all.legal += m.legal;
  all.evaluated += m.evaluated;
  all.fit += m.fit;
  all.survivors.insert(all.survivors.end(), m.survivors.begin(), m.survivors.end());
  if (m.any_fit && (!all.any_fit || fit_order(s, m.first_fit) < fit_order(s, all.first_fit)))
    all.first_fit = m.first_fit;
  all.any_fit = all.any_fit || m.any_fit;
  if (m.nearest.any && (!all.nearest.any || m.nearest.over < all.nearest.over))
    all.nearest = m.nearest;
  for (const auto& [reason, count] : m.broken) all.rejected[reason_name(reason)] += count;
}

}  // namespace

Enumeration enumerate(const SearchRequest& request, const Problem& p, const Space& space,
                      int threads) {
  std::vector<std::unique_ptr<Evaluator>> evaluators;
  std::vector<std::unique_ptr<Legality>> legalities;
  for (int t = 0; t < threads; ++t) {
    evaluators.push_back(std::make_unique<Evaluator>(p));
    legalities.push_back(std::make_unique<Legality>(p));
  }
  std::vector<std::uint32_t> meshes;
  for (std::uint32_t mesh = 0; mesh < space.meshes.size(); ++mesh)
    if (request.part.has(mesh)) meshes.push_back(mesh);
  std::vector<MeshResult> results(meshes.size());
  std::atomic<std::size_t> done{0};
  std::mutex reporting;
  parallel_for(meshes.size(), threads, [&](int thread, std::size_t i) {
    if (request.stopped()) return;
    const auto t = static_cast<std::size_t>(thread);
    results[i] = MeshScan(request, p, space, *evaluators[t], meshes[i], *legalities[t]).run();
    const std::size_t finished = ++done;
    if (request.progress && finished % 256 == 0) {
      const std::lock_guard lock(reporting);
      request.progress(0.8 * static_cast<double>(finished) / static_cast<double>(meshes.size()));
    }
  });
  Enumeration all;
  all.candidates = done * space.inner_size();
  if (done < meshes.size())
    all.scanned = static_cast<double>(done) / static_cast<double>(meshes.size());
  for (MeshResult& m : results) merge(all, space, std::move(m));
  return all;
}

}  // namespace moecast
