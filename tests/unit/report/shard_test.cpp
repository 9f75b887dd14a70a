// Parts of a search, merged: the whole answer, whatever the number of parts and their order.
#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "catch.hpp"
#include "problem_of.hpp"
#include "report/report.hpp"
#include "temp_dir.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

/// Eighty meshes of a small model, with a few rows in every family.
SearchRequest question(int top) {
  SearchRequest r;
  r.base = run_of("olmoe-1b-7b", "dgx-h100", 8);
  r.base.model_overrides["num_hidden_layers"] = 8;
  r.base.global_batch_size = 32;
  r.vary_micro_batch_size = false;
  r.fix = {{"layout.context_parallel_size", "1"},
           {"layout.tensor_model_parallel_size", "1"},
           {"layout.expert_tensor_parallel_size", "1"},
           {"moe.dispatcher", "alltoall"},
           {"cuda_graph.impl", "none"},
           {"offload.optimizer_fraction", "0"}};
  r.top = top;
  r.threads = 1;
  return r;
}

SearchShard part_of(SearchRequest r, int index, int of) {
  r.part = {index, of};
  return {std::to_string(index) + ".json", r.part, r.top, {{"top", r.top}}, must(search(r))};
}

/// All parts, as they come back from their files.
std::vector<SearchShard> parts_of(const SearchRequest& r, int of) {
  const TempDir dir;
  std::vector<SearchShard> shards;
  for (int index = 1; index <= of; ++index) {
    const SearchShard made = part_of(r, index, of);
    shards.push_back(must(read_shard(dir.file(made.file, dump(shard_json(made))))));
  }
  return shards;
}

/// What a user sees, but for the time and, in a pruned search, how many exact steps it took.
std::string answer(const SearchResult& result, bool exhaustive) {
  Json d = search_json(result);
  for (const char* key : {"elapsed_s", "candidates_per_s", "evaluated_per_s", "simulated_per_s"})
    d.erase(key);
  if (!exhaustive)
    for (const char* key : {"simulated", "pruned"}) d["space"].erase(key);
  return dump(d);
}

std::string problems_of(const std::vector<SearchShard>& shards) {
  std::string text;
  const Result<SearchResult> merged = merge(shards);
  for (const Diagnostic& d : merged.problems()) text += to_string(d) + "\n";
  return text;
}

}  // namespace

TEST_CASE("merged parts are the answer of the whole search, byte for byte") {
  for (const bool exhaustive : {false, true}) {
    for (const int top : {1, 10, 150}) {  // 150: more than there are families
      SearchRequest r = question(top);
      r.exhaustive = exhaustive;
      const SearchResult whole = must(search(r));
      REQUIRE(whole.any_fit);
      REQUIRE(whole.pareto.size() > (top == 1 ? 0 : 1));
      for (const int of : {1, 4}) {
        INFO(top << " rows of " << of << " parts");
        const SearchResult merged = must(merge(parts_of(r, of)));
        const bool same = answer(merged, exhaustive) == answer(whole, exhaustive);
        CHECK(same);
        CHECK(merged.simulated >= whole.simulated);
      }
    }
  }
}

TEST_CASE("merged parts are the whole answer for every objective") {
  using enum SearchRequest::Objective;
  for (const auto objective : {memory, tokens_per_dollar, robustness}) {
    SearchRequest r = question(6);
    r.objective = objective;
    const SearchResult whole = must(search(r));
    REQUIRE(whole.ranked.size() == 6);
    CHECK(answer(must(merge(parts_of(r, 3))), false) == answer(whole, false));
  }
}

TEST_CASE("more parts than meshes, and parts in which nothing fits, still make the whole answer") {
  SearchRequest r = question(3);
  for (const char* size : {"pipeline", "expert"})
    r.fix.emplace_back("layout." + std::string(size) + "_model_parallel_size", "1");
  const std::string whole = answer(must(search(r)), false);
  CHECK(answer(must(merge(parts_of(r, 40))), false) == whole);
}

TEST_CASE("where nothing fits, the merged answer names the nearest miss of the whole space") {
  SearchRequest r = question(3);
  r.min_headroom_gib = 75;
  const SearchResult whole = must(search(r));
  REQUIRE_FALSE(whole.any_fit);
  REQUIRE(whole.nearest.run.gpus > 0);
  const SearchResult merged = must(merge(parts_of(r, 5)));
  CHECK(answer(merged, false) == answer(whole, false));
}

TEST_CASE("the order of the parts does not matter, and a merged answer is no part") {
  const SearchRequest r = question(10);
  std::vector<SearchShard> shards = parts_of(r, 4);
  const SearchResult merged = must(merge(shards));
  std::reverse(shards.begin(), shards.end());
  CHECK(answer(must(merge(shards)), true) == answer(merged, true));
  std::rotate(shards.begin(), shards.begin() + 1, shards.end());
  CHECK(answer(must(merge(shards)), true) == answer(merged, true));
  const TempDir dir;
  CHECK_FALSE(read_shard(dir.file("merged.json", dump(search_json(merged)))).ok());
}

TEST_CASE("missing, doubled, stopped and foreign parts are refused, all at once") {
  const std::vector<SearchShard> good = parts_of(question(2), 3);
  std::vector<SearchShard> shards{good[0], good[0]};
  CHECK(problems_of(shards).find("part 1 is given twice, first in ") != std::string::npos);
  CHECK(problems_of(shards).find("2 of 3 parts missing: 2, 3") != std::string::npos);
  shards = good;
  shards[1].result.complete = false;
  shards[2].asked["top"] = 3;
  CHECK(problems_of(shards).find("was interrupted") != std::string::npos);
  CHECK(problems_of(shards).find("/top is 3 instead of 2") != std::string::npos);
  shards = good;
  shards[0].part.of = 4;
  CHECK(problems_of(shards).find("1 of 4") != std::string::npos);
  CHECK_FALSE(merge({}).ok());
}

TEST_CASE("parts are about equal, also where their number divides an axis of the space") {
  for (const int of : {2, 3, 4, 12, 64}) {
    std::vector<int> sizes(static_cast<std::size_t>(of), 0);
    for (std::uint64_t mesh = 0; mesh < 64000; mesh += 4) {  // one of four micro batch sizes
      for (int index = 1; index <= of; ++index)
        sizes[static_cast<std::size_t>(index - 1)] += SearchPart{index, of}.has(mesh);
    }
    INFO(of << " parts");
    CHECK(*std::max_element(sizes.begin(), sizes.end()) <=
          1.3 * *std::min_element(sizes.begin(), sizes.end()));
  }
}

TEST_CASE("a search that is stopped answers with the best so far and says that it is incomplete") {
  SearchRequest r = question(5);
  r.exhaustive = true;
  r.base.model_overrides.clear();
  r.vary_micro_batch_size = true;
  r.fix = {{"recompute.granularity",
            "none"}};  // enough meshes for the progress to be reported in the first pass
  std::atomic<bool> stop{false};
  r.stop = &stop;
  r.progress = [&](double) { stop = true; };
  const SearchResult part = must(search(r));
  CHECK_FALSE(part.complete);
  CHECK(part.scanned > 0);
  CHECK(part.scanned < 1);
  CHECK(part.pruned == 0);
  CHECK(part.simulated <= part.fit);
  REQUIRE(part.any_fit);
  CHECK(part.ranked.size() == 5);
  CHECK(search_json(part).at("complete") == false);
}
