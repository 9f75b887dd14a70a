// Fit, bound, simulate, rank, explain.
#include "moecast/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "estimate/walls.hpp"
#include "layout/knobs.hpp"
#include "search/enumerate.hpp"
#include "search/explain.hpp"
#include "search/explain_layout.hpp"
#include "search/finish.hpp"
#include "search/rank_order.hpp"
#include "search/simulate.hpp"
#include "search/split.hpp"

namespace moecast {
namespace {

/// A row is what estimate says of its run, whatever the search ranked by. `better`: where its
/// layers lie, if not as the automatic split puts them.
RankedLayout ranked(const SearchRequest& request, const Problem& asked, const Space& s,
                    const Simulated& c, const std::optional<Split>& better = std::nullopt) {
  RankedLayout r;
  r.run = request.base;
  r.run.layout = candidate(s, c.candidate.mesh, c.candidate.inner);
  Problem p = asked;
  if (better) {
    r.run.layout.pipeline_split = PipelineSplit::explicit_string;
    p.run.pipeline_model_parallel_layout = better->layout;
  }
  const Layout l = r.run.layout;
  Evaluator e(p);
  Estimate detail;
  const Outcome outcome = e.evaluate(r.run.layout, Depth::exact, &detail);
  if (request.objective == SearchRequest::Objective::robustness)
    r.worst_step_time = seconds(better ? better->outcome.step : c.key.step);
  const std::string& split = detail.run.pipeline_model_parallel_layout;
  if (!split.empty()) {  // what auto chose, in Megatron's words: the run can be exported and gives
                         // the same numbers
    r.run.layout.pipeline_split = PipelineSplit::explicit_string;
    r.run.pipeline_model_parallel_layout = split;
  }
  r.step_time = seconds(outcome.step);
  const double tokens =
      static_cast<double>(p.global_batch_size) * p.seq_length / outcome.step / p.world;
  r.tflops_per_gpu = tokens * model_flops_per_token(p.model, p.seq_length, r.run.layout.tp) / 1e12;
  r.peak = bytes(outcome.peak);
  r.peak_reserved = bytes(outcome.reserved);
  r.wall = find_wall(p, l, outcome).wall;
  r.why = why(p, r.run.layout, detail, outcome);
  r.key = c.key;
  r.value = better ? better->outcome.step : c.key.value;
  return r;
}

bool searches_split(const SearchRequest& request) {
  const auto is_split = [](const auto& pair) {
    const Knob* knob = find_knob(pair.first);
    return knob != nullptr && knob->key == "layout.pipeline_model_parallel_layout";
  };
  return std::none_of(request.fix.begin(), request.fix.end(), is_split) &&
         std::none_of(request.vary.begin(), request.vary.end(), is_split);
}

/// The listed rows, each with the best split of its layers that is found (a split is an axis of
/// its own: it is not searched where the request says it, or ranks by memory).
std::vector<RankedLayout> listed(const SearchRequest& request, const Problem& p,
                                 const Problem& judged, const Space& s,
                                 const std::vector<Simulated>& first, int threads) {
  std::vector<RankedLayout> rows(first.size());
  const double room = p.system().gpu.hbm_capacity.value - request.min_headroom_gib * kBytesPerGib;
  parallel_for(first.size(), threads, [&](int, std::size_t i) {
    const Simulated& c = first[i];
    std::optional<Split> better;
    if (request.objective != SearchRequest::Objective::memory && searches_split(request)) {
      Outcome automatic;
      automatic.reserved = c.key.reserved;
      automatic.step = c.key.step;
      better =
          better_split(judged, candidate(s, c.candidate.mesh, c.candidate.inner), automatic, room);
    }
    rows[i] = ranked(request, p, s, c, better);
  });
  return rows;
}

/// The problem that layouts are judged by: time and memory only grow with the imbalance, so the
/// worst of a range is its end. (The model's residual is the same factor for all layouts.)
Problem judged_by(const SearchRequest& request, const Problem& p) {
  Problem judged = p;
  if (request.objective == SearchRequest::Objective::robustness)
    judged.imbalance = std::max(p.imbalance, request.worst_imbalance);
  return judged;
}

}  // namespace

Result<SearchResult> search(const SearchRequest& asked) {
  const auto began = std::chrono::steady_clock::now();
  SearchRequest request = asked;
  request.top = compared_rows(asked.top);
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

  const Problem judged = judged_by(request, p);
  const auto [all, simulated] = find_layouts(request, judged, s, threads);
  SearchResult result;
  result.candidates = all.candidates;
  result.legal = all.legal;
  result.evaluated = all.evaluated;
  result.fit = all.fit;
  result.rejected = all.rejected;
  result.any_fit = all.any_fit;
  result.scanned = all.scanned;
  if (all.any_fit) {
    result.simulated = simulated.size();
    if (!request.stopped()) result.pruned = all.fit - simulated.size();
    const auto top = static_cast<std::size_t>(request.top);
    result.ranked = listed(request, p, judged, s, first_of(simulated, top), threads);
    const double limit = front_limit(simulated, top);
    for (const Simulated& c :
         pareto_front(simulated, limit, request.part.whole() ? kFrontRows : simulated.size()))
      result.pareto.push_back(ranked(request, p, s, c));
    if (request.part.whole()) finish(result, asked.top, threads);
    const Layout first = candidate(s, all.first_fit.mesh, all.first_fit.inner);
    const Outcome o = Evaluator(judged).evaluate(first, Depth::exact);
    result.first_fit =
        ranked(request, p, s, {all.first_fit, key_of(request, s, all.first_fit, o.step)});
    result.first_fit_order = fit_order(s, all.first_fit);
  } else if (all.nearest.any) {
    result.nearest.run = request.base;
    result.nearest.run.layout = candidate(s, all.nearest.mesh, all.nearest.inner);
    result.nearest.over = bytes(all.nearest.over);
    result.nearest.change =
        nearest_change(judged, result.nearest.run.layout, request.min_headroom_gib);
    result.nearest.mesh = all.nearest.mesh;
  }
  if (request.explain) result.explained = explain_layout(request, judged, s, result.ranked);
  result.complete = !request.stopped();
  if (request.progress) request.progress(1);
  result.elapsed_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

}  // namespace moecast
