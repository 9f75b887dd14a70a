// Fit, bound, simulate, rank, explain.
#include "moecast/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "estimate/walls.hpp"
#include "layout/knobs.hpp"
#include "search/enumerate.hpp"
#include "search/explain.hpp"
#include "search/rank_order.hpp"

namespace moecast {
namespace {

struct Simulated {
  Survivor candidate;
  Outcome outcome;
  RankKey key;
};

/// Candidates that differ only in graph scope, delayed wgrad or memory measures are one family, so
/// that ten rows are ten layouts.
RankKey key_of(const SearchRequest& r, const Space& s, const Survivor& c, const Outcome& o) {
  const auto n = [](std::size_t index) { return static_cast<std::uint32_t>(index); };
  const InnerIndex& i = c.inner;
  RankKey key;
  key.value = r.objective == SearchRequest::Objective::memory ? o.reserved : o.step;
  key.step = o.step;
  key.place = {c.mesh, n(i.dispatcher), n(i.overlap), n(i.graph), n(i.recompute), n(i.offload)};
  key.family = {c.mesh, n(i.dispatcher), s.overlaps[i.overlap].overlap};
  key.reserved = o.reserved;
  return key;
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
    const auto place = [](const Survivor& c) {
      const InnerIndex& i = c.inner;
      return std::tuple(c.mesh, i.offload, i.dispatcher, i.overlap, i.graph, i.recompute);
    };
    std::sort(survivors.begin(), survivors.end(), [&](const Survivor& a, const Survivor& b) {
      const double va = by_memory ? a.reserved : a.bound, vb = by_memory ? b.reserved : b.bound;
      return va != vb ? va < vb : place(a) < place(b);
    });
    constexpr std::size_t kBatch = 256;
    for (std::size_t first = 0; first < survivors.size(); first += kBatch) {
      if (first > 0 && request_.stopped()) break;
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
    return in_rank_order(std::move(all_));
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
      const Outcome o = evaluators_[static_cast<std::size_t>(thread)]->evaluate(
          candidate(s_, c.mesh, c.inner), Depth::exact);
      results[order[i]] = {c, o, key_of(request_, s_, c, o)};
    });
    for (const Simulated& s : results) {
      const auto [at, added] = best_.emplace(s.key.family, s.key.value);
      if (!added) at->second = std::min(at->second, s.key.value);
      all_.push_back(s);
    }
  }

  const SearchRequest& request_;
  const Problem& p_;
  const Space& s_;
  int threads_;
  std::vector<std::unique_ptr<Evaluator>> evaluators_;
  std::vector<Simulated> all_;
  std::map<decltype(RankKey::family), double> best_;  ///< of every family
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
  r.key = c.key;
  return r;
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
  result.scanned = all.scanned;
  if (all.any_fit) {
    const std::size_t rankable = all.survivors.size();
    const std::vector<Simulated> simulated =
        Simulation(request, p, s, threads).run(std::move(all.survivors));
    result.simulated = simulated.size();
    if (!request.stopped()) result.pruned = rankable - simulated.size();
    const auto top = static_cast<std::size_t>(request.top);
    for (const Simulated& c : first_of(simulated, top))
      result.ranked.push_back(ranked(request, p, s, c));
    const double limit = front_limit(simulated, top);
    for (const Simulated& c :
         pareto_front(simulated, limit, request.part.whole() ? kFrontRows : simulated.size()))
      result.pareto.push_back(ranked(request, p, s, c));
    const Layout first = candidate(s, all.first_fit.mesh, all.first_fit.inner);
    const Outcome o = Evaluator(p).evaluate(first, Depth::exact);
    result.first_fit =
        ranked(request, p, s, {all.first_fit, o, key_of(request, s, all.first_fit, o)});
    result.first_fit_order = fit_order(s, all.first_fit);
  } else if (all.nearest.any) {
    result.nearest.run = request.base;
    result.nearest.run.layout = candidate(s, all.nearest.mesh, all.nearest.inner);
    result.nearest.over = bytes(all.nearest.over);
    result.nearest.change = nearest_change(p, result.nearest.run.layout, request.min_headroom_gib);
    result.nearest.mesh = all.nearest.mesh;
  }
  result.complete = !request.stopped();
  if (request.progress) request.progress(1);
  result.elapsed_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

}  // namespace moecast
