#include "search/enumerate.hpp"

#include <algorithm>
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

namespace {

/// What one mesh contributes.
struct MeshResult {
  std::uint64_t legal = 0, evaluated = 0, fit = 0;
  std::vector<Survivor> survivors;
  bool any_fit = false;
  Survivor first_fit;
  Shortfall nearest;
  std::map<int, std::uint64_t> broken;  ///< rule index; -1 = no plan, -2 = memory, -3 = does more than needed
};

/// The fit order: no offload, selective before full recomputation, smallest model parallelism, then least recomputation, fewest chunks,
/// smallest expert groups, smallest micro batch.
auto fit_order(const Space& s, const Survivor& c) {
  const Layout& l = s.meshes[c.mesh];
  const RecomputeChoice& r = s.recomputes[c.inner.recompute];
  const OffloadChoice& o = s.offloads[c.inner.offload];
  return std::tuple(!o.modules.empty() || o.optimizer_fraction > 0, r.granularity == RecomputeGranularity::full, l.tp * l.cp * l.pp,
                    std::popcount(r.modules.bits), l.vpp, l.ep * l.etp, l.micro_batch_size, c.mesh, c.inner.dispatcher,
                    c.inner.overlap, c.inner.graph, c.inner.offload);
}

class MeshScan {
 public:
  MeshScan(const SearchRequest& r, const Problem& p, const Space& s, Evaluator& e, std::uint32_t mesh, const Versions& v)
      : request_(r), p_(p), s_(s), evaluator_(e), mesh_(mesh), versions_(v) {}

  MeshResult run() {
    const Layout& neutral = s_.meshes[mesh_];
    if (const int rule = first_broken_rule(rule_input(p_, neutral, versions_)); rule >= 0) {
      result_.broken[rule] += s_.inner_size();
      return std::move(result_);
    }
    InnerIndex i;
    for (i.dispatcher = 0; i.dispatcher < s_.dispatchers.size(); ++i.dispatcher) {
      for (i.overlap = 0; i.overlap < s_.overlaps.size(); ++i.overlap) {
        for (i.graph = 0; i.graph < s_.graphs.size(); ++i.graph) memory_measures(i);
      }
    }
    return std::move(result_);
  }

 private:
  /// Recomputation from least to most, offload last: a measure is only ranked when no part of it is enough.
  void memory_measures(InnerIndex i) {
    enough_.clear();
    bool without_offload = false;
    for (i.offload = 0; i.offload < s_.offloads.size(); ++i.offload) {
      for (i.recompute = 0; i.recompute < s_.recomputes.size(); ++i.recompute) {
        const Layout l = candidate(s_, mesh_, i);
        if (const int rule = first_broken_rule(rule_input(p_, l, versions_)); rule >= 0) {
          ++result_.broken[rule];
          continue;
        }
        ++result_.legal;
        if (i.offload > 0 && without_offload) {
          ++result_.broken[-3];
          continue;
        }
        assess(l, i);
      }
      if (!enough_.empty()) without_offload = true;
    }
  }

  void assess(const Layout& l, const InnerIndex& i) {
    const Outcome o = evaluator_.evaluate(l, Depth::bound);
    if (o.status == Outcome::Status::no_plan) {
      ++result_.broken[-1];
      return;
    }
    ++result_.evaluated;
    const double over = o.reserved + request_.min_headroom_gib * kBytesPerGib - p_.system().gpu.hbm_capacity.value;
    if (over > 0) {
      ++result_.broken[-2];
      if (!result_.nearest.any || over < result_.nearest.over) result_.nearest = {true, mesh_, i, over};
      return;
    }
    ++result_.fit;
    const bool pointless = std::any_of(enough_.begin(), enough_.end(), [&](std::size_t enough) {
      return recomputes_more(s_.recomputes[i.recompute], s_.recomputes[enough]);
    });
    if (pointless) {
      ++result_.broken[-3];
      return;
    }
    enough_.push_back(i.recompute);
    const Survivor c{mesh_, i, o.bound, o.reserved};
    if (!result_.any_fit || fit_order(s_, c) < fit_order(s_, result_.first_fit)) result_.first_fit = c;
    result_.any_fit = true;
    result_.survivors.push_back(c);
  }

  const SearchRequest& request_;
  const Problem& p_;
  const Space& s_;
  Evaluator& evaluator_;
  std::uint32_t mesh_;
  const Versions& versions_;
  MeshResult result_;
  std::vector<std::size_t> enough_;  ///< recompute choices that fit already, for this dispatcher, overlap and graph
};

std::string reason_name(int broken) {
  switch (broken) {
    case -1: return "no pipeline split";
    case -2: return "memory";
    case -3: return "recomputes or offloads more than needed";
    default: return std::string(rule_table()[static_cast<std::size_t>(broken)].id);
  }
}

void merge(Enumeration& all, const Space& s, MeshResult&& m) {
  all.legal += m.legal;
  all.evaluated += m.evaluated;
  all.fit += m.fit;
  all.survivors.insert(all.survivors.end(), m.survivors.begin(), m.survivors.end());
  if (m.any_fit && (!all.any_fit || fit_order(s, m.first_fit) < fit_order(s, all.first_fit))) all.first_fit = m.first_fit;
  all.any_fit = all.any_fit || m.any_fit;
  if (m.nearest.any && (!all.nearest.any || m.nearest.over < all.nearest.over)) all.nearest = m.nearest;
  for (const auto& [reason, count] : m.broken) all.rejected[reason_name(reason)] += count;
}

}  // namespace

Enumeration enumerate(const SearchRequest& request, const Problem& p, const Space& space, int threads) {
  const Versions versions = parse_versions(p.software);
  std::vector<std::unique_ptr<Evaluator>> evaluators;
  for (int t = 0; t < threads; ++t) evaluators.push_back(std::make_unique<Evaluator>(p));
  std::vector<MeshResult> results(space.meshes.size());
  std::atomic<std::size_t> done{0};
  std::mutex reporting;
  parallel_for(space.meshes.size(), threads, [&](int thread, std::size_t mesh) {
    results[mesh] = MeshScan(request, p, space, *evaluators[static_cast<std::size_t>(thread)], static_cast<std::uint32_t>(mesh), versions).run();
    const std::size_t finished = ++done;
    if (request.progress && finished % 256 == 0) {
      const std::lock_guard lock(reporting);
      request.progress(0.8 * static_cast<double>(finished) / static_cast<double>(space.meshes.size()));
    }
  });
  Enumeration all;
  all.candidates = static_cast<std::uint64_t>(space.meshes.size()) * space.inner_size();
  for (MeshResult& m : results) merge(all, space, std::move(m));
  return all;
}

}  // namespace moecast
