// Fit, bound, simulate, rank, explain.
#include "moecast/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "estimate/walls.hpp"
#include "layout/knobs.hpp"
#include "search/enumerate.hpp"
#include "search/explain.hpp"

namespace moecast {
namespace {

struct Simulated {
  Survivor candidate;
  Outcome outcome;
};

/// Candidates that differ only in graph scope, delayed wgrad or memory measures are one family: the
/// ranking shows the best of each first, so that ten rows are ten layouts.
using Family = std::tuple<std::uint32_t, std::size_t, bool>;
Family family_of(const Space& s, const Survivor& c) {
  return {c.mesh, c.inner.dispatcher, s.overlaps[c.inner.overlap].overlap};
}

/// The order of `sorted` with the best of every family before the rest.
std::vector<Simulated> families_first(const Space& s, const std::vector<Simulated>& sorted) {
  std::vector<Simulated> first, rest;
  std::set<Family> seen;
  for (const Simulated& c : sorted)
    (seen.insert(family_of(s, c.candidate)).second ? first : rest).push_back(c);
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

/// Ranks by the objective; ties go to the earlier candidate of the space.
bool better(const Simulated& a, const Simulated& b, SearchRequest::Objective objective) {
  const bool by_memory = objective == SearchRequest::Objective::memory;
  const double ka = by_memory ? a.outcome.reserved : a.outcome.step,
               kb = by_memory ? b.outcome.reserved : b.outcome.step;
  if (ka != kb) return ka < kb;
  if (a.outcome.step != b.outcome.step) return a.outcome.step < b.outcome.step;
  const auto key = [](const Survivor& s) {
    return std::tuple(s.mesh, s.inner.dispatcher, s.inner.overlap, s.inner.graph, s.inner.recompute,
                      s.inner.offload);
  };
  return key(a.candidate) < key(b.candidate);
}

/// Second pass: exact steps in the order of the bound, in batches of fixed size, until no bound can
/// beat the K-th best.
class Simulation {
 public:
  Simulation(const SearchRequest& r, const Problem& p, const Space& s, int threads)
      : request_(r), p_(p), s_(s), threads_(threads) {
    for (int t = 0; t < threads; ++t) evaluators_.push_back(std::make_unique<Evaluator>(p));
  }

  std::vector<Simulated> run(std::vector<Survivor> survivors) {
    const bool by_memory = request_.objective == SearchRequest::Objective::memory;
    std::stable_sort(survivors.begin(), survivors.end(), [&](const Survivor& a, const Survivor& b) {
      return by_memory ? a.reserved < b.reserved : a.bound < b.bound;
    });
    constexpr std::size_t kBatch = 256;
    for (std::size_t first = 0; first < survivors.size(); first += kBatch) {
      if (!request_.exhaustive &&
          settled(by_memory ? survivors[first].reserved : survivors[first].bound))
        break;
      batch({survivors.begin() + static_cast<std::ptrdiff_t>(first),
             survivors.begin() +
                 static_cast<std::ptrdiff_t>(std::min(first + kBatch, survivors.size()))});
      if (request_.progress)
        request_.progress(0.8 +
                          0.2 * static_cast<double>(first) / static_cast<double>(survivors.size()));
    }
    std::sort(all_.begin(), all_.end(), [&](const Simulated& a, const Simulated& b) {
      return better(a, b, request_.objective);
    });
    return families_first(s_, all_);
  }

 private:
  /// No candidate from here on can enter the first K.
  [[nodiscard]] bool settled(double next_bound) const {
    if (best_.size() < static_cast<std::size_t>(request_.top)) return false;
    std::vector<double> values;
    for (const auto& [family, value] : best_) values.push_back(value);
    std::nth_element(values.begin(), values.begin() + (request_.top - 1), values.end());
    return next_bound > values[static_cast<std::size_t>(request_.top) - 1];
  }

  void batch(std::vector<Survivor> items) {
    // neighbours in the space share tables: simulate in that order, keep the results in batch order
    std::vector<Simulated> results(items.size());
    std::vector<std::size_t> order(items.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return items[a].mesh < items[b].mesh; });
    parallel_for(items.size(), threads_, [&](int thread, std::size_t i) {
      const Survivor& c = items[order[i]];
      results[order[i]] = {c, evaluators_[static_cast<std::size_t>(thread)]->evaluate(
                                  candidate(s_, c.mesh, c.inner), Depth::exact)};
    });
    for (const Simulated& s : results) {
      const double value = request_.objective == SearchRequest::Objective::memory
                               ? s.outcome.reserved
                               : s.outcome.step;
      const auto [at, added] = best_.emplace(family_of(s_, s.candidate), value);
      if (!added) at->second = std::min(at->second, value);
      all_.push_back(s);
    }
  }

  const SearchRequest& request_;
  const Problem& p_;
  const Space& s_;
  int threads_;
  std::vector<std::unique_ptr<Evaluator>> evaluators_;
  std::vector<Simulated> all_;
  std::map<Family, double> best_;  ///< of every family
};

RankedLayout ranked(const SearchRequest& request, const Problem& p, const Space& s,
                    const Simulated& c) {
  RankedLayout r;
  r.run = request.base;
  r.run.layout = candidate(s, c.candidate.mesh, c.candidate.inner);
  Evaluator e(p);
  Estimate detail;
  e.evaluate(r.run.layout, Depth::exact, &detail);
  const std::string& split = detail.run.pipeline_model_parallel_layout;
  if (!split.empty()) {  // what auto chose, in Megatron's words: the run can be exported and gives
                         // the same numbers
    r.run.layout.pipeline_split = PipelineSplit::explicit_string;
    r.run.pipeline_model_parallel_layout = split;
  }
  r.step_time = seconds(c.outcome.step);
  const double tokens =
      static_cast<double>(p.global_batch_size) * p.seq_length / c.outcome.step / p.world;
  r.tflops_per_gpu = tokens * model_flops_per_token(p.model, p.seq_length, r.run.layout.tp) / 1e12;
  r.peak = bytes(c.outcome.peak);
  r.peak_reserved = bytes(c.outcome.reserved);
  r.wall = find_wall(p, candidate(s, c.candidate.mesh, c.candidate.inner), c.outcome).wall;
  r.why = why(p, r.run.layout, detail, c.outcome);
  return r;
}

/// Step time against memory, of everything simulated.
std::vector<Simulated> pareto_front(const std::vector<Simulated>& by_step) {
  std::vector<Simulated> front;
  for (const Simulated& s : by_step) {
    if (front.empty() || s.outcome.reserved < front.back().outcome.reserved) front.push_back(s);
  }
  if (front.size() > 10) front.resize(10);
  return front;
}

}  // namespace

Result<SearchResult> search(const SearchRequest& asked) {
  const auto began = std::chrono::steady_clock::now();
  SearchRequest request = asked;
  Diagnostics problems;
  for (const auto& [name, text] : request.fix) {
    const Knob* knob = find_knob(name);
    Value value = Value::parse(text, nullptr, false);
    if (value.is_discarded()) value = text;
    const std::string wrong = knob == nullptr ? "no such knob" : knob->set(request.base, value);
    if (!wrong.empty()) problems.push_back({"--fix", 0, 0, name, wrong, ""});
  }
  if (!problems.empty()) return problems;
  auto made = make_problem(request.base);
  if (!made) return made.problems();
  const Problem p = made.take();
  auto space = make_space(request, p);
  if (!space) return space.problems();
  const Space& s = space.value();
  const int threads = request.threads > 0
                          ? request.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));

  Enumeration all = enumerate(request, p, s, threads);
  SearchResult result;
  result.candidates = all.candidates;
  result.legal = all.legal;
  result.evaluated = all.evaluated;
  result.fit = all.fit;
  result.rejected = all.rejected;
  result.any_fit = all.any_fit;
  if (all.any_fit) {
    const std::size_t rankable = all.survivors.size();
    std::vector<Simulated> simulated =
        Simulation(request, p, s, threads).run(std::move(all.survivors));
    result.simulated = simulated.size();
    result.pruned = rankable - simulated.size();
    for (std::size_t i = 0; i < simulated.size() && i < static_cast<std::size_t>(request.top);
         ++i) {
      result.ranked.push_back(ranked(request, p, s, simulated[i]));
    }
    std::vector<Simulated> by_step = simulated;
    std::sort(by_step.begin(), by_step.end(), [](const Simulated& a, const Simulated& b) {
      return better(a, b, SearchRequest::Objective::step_time);
    });
    for (const Simulated& f : pareto_front(by_step))
      result.pareto.push_back(ranked(request, p, s, f));
    Evaluator e(p);
    const Outcome first =
        e.evaluate(candidate(s, all.first_fit.mesh, all.first_fit.inner), Depth::exact);
    result.first_fit = ranked(request, p, s, {all.first_fit, first});
  } else if (all.nearest.any) {
    result.nearest.run = request.base;
    result.nearest.run.layout = candidate(s, all.nearest.mesh, all.nearest.inner);
    result.nearest.over = bytes(all.nearest.over);
    result.nearest.change = nearest_change(p, result.nearest.run.layout, request.min_headroom_gib);
  }
  result.elapsed_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

}  // namespace moecast
