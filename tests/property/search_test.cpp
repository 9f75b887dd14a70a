// The search: the same answer for any number of threads, with or without pruning, and the same
// numbers as estimate.
#include "moecast/search.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <tuple>

#include "catch.hpp"
#include "core/document.hpp"
#include "estimate/interval.hpp"
#include "layout/run_file.hpp"
#include "moecast/evaluator.hpp"
#include "problem_of.hpp"
#include "random_layouts.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

/// A space of a few thousand candidates of a small model.
SearchRequest small_request(const std::string& model, const std::string& system, int gpus) {
  SearchRequest r;
  r.base = run_of(model, system, gpus);
  r.base.model_overrides["num_hidden_layers"] = 8;
  r.base.global_batch_size = 32;
  r.fix = {{"layout.expert_tensor_parallel_size", "1"},
           {"layout.context_parallel_size", "1"},
           {"cuda_graph.impl", "none"},
           {"train.micro_batch_size", "1"},
           {"offload.optimizer_fraction", "0"}};
  r.vary_micro_batch_size = false;
  r.threads = 1;
  r.top = 8;
  return r;
}

/// Everything of a row that a user sees.
std::string in_words(const RankedLayout& r) {
  char numbers[200];
  std::snprintf(numbers, sizeof numbers, "%a %a %a %a", r.step_time.value, r.tflops_per_gpu,
                r.peak.value, r.peak_reserved.value);
  return run_to_json(r.run).dump() + ' ' + numbers + ' ' + to_string(r.wall) + ' ' + r.why;
}
std::vector<std::string> in_words(const std::vector<RankedLayout>& rows) {
  std::vector<std::string> words;
  for (const RankedLayout& r : rows) words.push_back(in_words(r));
  return words;
}

}  // namespace

TEST_CASE("the answer of a search does not depend on the number of threads") {
  SearchRequest request = small_request("qwen3-30b-a3b", "dgx-h100", 16);
  const SearchResult one = must(search(request));
  REQUIRE(one.any_fit);
  for (const int threads : {2, 5}) {
    request.threads = threads;
    const SearchResult many = must(search(request));
    CHECK(in_words(many.ranked) == in_words(one.ranked));
    CHECK(in_words(many.pareto) == in_words(one.pareto));
    CHECK(in_words(many.first_fit) == in_words(one.first_fit));
    CHECK(many.rejected == one.rejected);
    CHECK(std::tuple(many.candidates, many.legal, many.evaluated, many.fit, many.simulated,
                     many.pruned) ==
          std::tuple(one.candidates, one.legal, one.evaluated, one.fit, one.simulated, one.pruned));
  }
}

TEST_CASE("a pruned search ranks what an exhaustive one ranks") {
  for (const char* model : {"qwen3-30b-a3b", "moonlight-16b-a3b"}) {
    SearchRequest request = small_request(model, "dgx-h200", 8);
    for (const auto objective :
         {SearchRequest::Objective::step_time, SearchRequest::Objective::memory}) {
      request.objective = objective;
      request.exhaustive = false;
      const SearchResult pruned = must(search(request));
      request.exhaustive = true;
      const SearchResult all = must(search(request));
      INFO(model);
      CHECK(in_words(pruned.ranked) == in_words(all.ranked));
      CHECK(in_words(pruned.first_fit) == in_words(all.first_fit));
      CHECK(pruned.candidates == all.candidates);
      CHECK(pruned.simulated <= all.simulated);
      CHECK(all.simulated > 0);
    }
  }
}

TEST_CASE("every row of a search is its run's estimate, bit for bit, and legal") {
  const SearchResult result = must(search(small_request("moonlight-16b-a3b", "dgx-b200", 16)));
  REQUIRE(result.ranked.size() > 1);
  std::vector<RankedLayout> rows = result.ranked;
  rows.insert(rows.end(), result.pareto.begin(), result.pareto.end());
  rows.push_back(result.first_fit);
  for (const RankedLayout& row : rows) {
    INFO(run_to_json(row.run).dump());
    const Estimate e = must(estimate(row.run));
    CHECK(e.step_time.value == row.step_time.value);
    CHECK(e.tflops_per_gpu == row.tflops_per_gpu);
    CHECK(e.ranks[static_cast<std::size_t>(e.largest_rank)].peak.value == row.peak.value);
    CHECK(e.ranks[static_cast<std::size_t>(e.largest_rank)].peak_reserved.value ==
          row.peak_reserved.value);
    CHECK(e.wall == row.wall);
    CHECK(e.fits);
  }
}

TEST_CASE("rows are in order, and nothing dominates a row of the Pareto front") {
  const SearchResult result = must(search(small_request("qwen3-30b-a3b", "dgx-h200", 16)));
  REQUIRE(result.ranked.size() > 1);
  CHECK(std::is_sorted(
      result.ranked.begin(), result.ranked.end(),
      [](const RankedLayout& a, const RankedLayout& b) { return a.step_time < b.step_time; }));
  for (const RankedLayout& a : result.pareto) {
    CHECK(std::none_of(result.ranked.begin(), result.ranked.end(), [&](const RankedLayout& b) {
      return b.step_time < a.step_time && b.peak_reserved < a.peak_reserved;
    }));
  }
  std::uint64_t rejected = 0;
  for (const auto& [reason, count] : result.rejected) rejected += count;
  CHECK(result.legal <= result.candidates);
  CHECK(result.evaluated <= result.legal);
  CHECK(result.fit <= result.evaluated);
  CHECK(rejected <= result.candidates);
}

TEST_CASE("is a row told apart from the first only where their error bar excludes 1?") {
  RankedLayout first, row;
  first.value = 10;
  row.value = 10.4;
  CHECK(row.told_apart_from(first));
  row.slower_half_width = 0.03;
  CHECK(row.told_apart_from(first));
  row.slower_half_width = 0.05;
  CHECK(!row.told_apart_from(first));
}

TEST_CASE("are the rows of a search held against the first by the parameters that both share?") {
  SearchRequest request = small_request("qwen3-30b-a3b", "dgx-h200", 16);
  const SearchResult result = must(search(request));
  REQUIRE(result.ranked.size() > 2);
  const RankedLayout& first = result.ranked.front();
  const auto known = [](const RankedLayout& row) {
    Problem p = problem_of(row.run);
    return std::pair(p, sensitivity(p, row.run.layout, row.step_time.value));
  };
  const auto [p, one] = known(first);
  CHECK(!first.slower_half_width);
  int tied = 0;
  for (std::size_t i = 1; i < result.ranked.size(); ++i) {
    const RankedLayout& row = result.ranked[i];
    REQUIRE(row.slower_half_width);
    CHECK(*row.slower_half_width == ratio_half_width(p, known(row).second, one));
    CHECK(*row.slower_half_width < half_width(p, one) + half_width(p, known(row).second));
    tied += row.told_apart_from(first) ? 0 : 1;
  }
  CHECK(tied > 0);  // rows 1 and 2 of a search are near-ties
  request.objective = SearchRequest::Objective::memory;
  for (const RankedLayout& row : must(search(request)).ranked) CHECK(!row.slower_half_width);
}

TEST_CASE("what fits nowhere is answered with the nearest miss and what would make it fit") {
  SearchRequest request = small_request("qwen3-235b-a22b", "dgx-h100", 8);
  request.base.model_overrides.clear();
  const SearchResult result = must(search(request));
  CHECK_FALSE(result.any_fit);
  CHECK(result.ranked.empty());
  CHECK(result.fit == 0);
  CHECK_FALSE(result.nearest.change.empty());
  const Estimate e =
      must(estimate(result.nearest.run, {.trace = false, .advice = false, .memory_detail = false}));
  const Bytes reserved = e.ranks[static_cast<std::size_t>(e.largest_rank)].peak_reserved;
  CHECK_THAT(result.nearest.over.value, WithinRel((reserved - e.capacity).value, 1e-9));
}

TEST_CASE("does a layout fit that excludes the leanest recomputation?") {
  SearchRequest request = small_request("llama3-8b", "dgx-b200", 8);
  request.base.layout.cpu_offloading_num_layers = 2;  // refused beside recomputation
  request.fix.emplace_back("offload.cpu_offloading_num_layers", "2");
  const SearchResult result = must(search(request));
  REQUIRE(result.any_fit);
  CHECK(result.ranked.front().run.layout.recompute_granularity == RecomputeGranularity::none);
}

TEST_CASE("a headroom that nothing leaves empties the ranking") {
  SearchRequest request = small_request("qwen3-30b-a3b", "dgx-h100", 8);
  REQUIRE(must(search(request)).any_fit);
  request.min_headroom_gib = 1000;
  const SearchResult result = must(search(request));
  CHECK_FALSE(result.any_fit);
  CHECK(in_gib(result.nearest.over) > 900);
}

TEST_CASE("the completed run gives the forecast of the run") {
  LegalLayouts samples(301);
  for (int i = 0; i < 25; ++i) {
    const Sample s = samples.next();
    INFO(s.words);
    const EstimateOptions quick{.trace = false, .advice = false, .memory_detail = false};
    const Estimate asked = must(estimate(s.problem.run, quick));
    const std::string text = run_to_json(asked.run).dump();
    const Run again = must(run_from_document(must(parse_document(text, "run.json"))));
    const Estimate b = must(estimate(again, quick));
    CHECK(b.step_time.value == asked.step_time.value);
    CHECK(b.ranks[static_cast<std::size_t>(b.largest_rank)].peak.value ==
          asked.ranks[static_cast<std::size_t>(asked.largest_rank)].peak.value);
  }
}
