#include "catch.hpp"
#include "cli/run_files.hpp"
#include "cli/run_moecast.hpp"
#include "temp_dir.hpp"

using namespace moecast::test;
using Json = nlohmann::json;

namespace {

/// A space of few axes, so that a search takes no time.
std::vector<std::string> small_search(const std::string& model, std::vector<std::string> more) {
  std::vector<std::string> args{"search",
                                "--model",
                                model,
                                "--system",
                                "dgx-h100",
                                "--gpus",
                                "8",
                                "--seq-length",
                                "4096",
                                "--global-batch-size",
                                "64",
                                "--cp",
                                "1",
                                "--etp",
                                "1",
                                "--vpp",
                                "1",
                                "--mbs",
                                "1",
                                "--dispatcher",
                                "alltoall",
                                "--fix",
                                "cuda_graph.impl=none",
                                "--fix",
                                "recompute.granularity=none"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace

TEST_CASE("every ranked layout is accepted by check and forecast the same by estimate") {
  const TempDir dir;
  const std::string folder = (dir.path() / "runs").string();
  const Outcome outcome =
      run(small_search("olmoe-1b-7b", {"--top", "3", "--json", "--export", "run", folder}));
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
  const Json d = outcome.json();
  CHECK(d.at("schema") == "moecast/search@1");
  REQUIRE(!d.at("ranked").empty());
  REQUIRE(d.at("ranked").size() <= 3);
  double last = 0;
  for (const Json& layout : d.at("ranked")) {
    const int rank = layout.at("rank").get<int>();
    const std::string file = folder + "/rank-0" + std::to_string(rank) + ".yaml";
    CHECK(run({"check", file}).exit_code == 0);
    const Json forecast = run({"estimate", file, "--json"}).json();
    CHECK(forecast.at("step_time_s") == layout.at("step_time_s"));
    CHECK(forecast.at("memory").at("peak_gib") == layout.at("peak_gib"));
    CHECK(layout.at("step_time_s").get<double>() >= last);
    last = layout.at("step_time_s").get<double>();
  }
}

TEST_CASE("the search report is a table, and no bar is drawn without a terminal") {
  const Outcome outcome = run(small_search("olmoe-1b-7b", {"--top", "2"}));
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
  for (const std::string part :
       {"candidates", "Ranked layouts", "TFLOPS", "First layout that fits", "Rejected"}) {
    INFO(part);
    CHECK(contains(outcome.out, part));
  }
}

TEST_CASE("a fixed knob has one value in every layout, a varied one may have several") {
  const Json d =
      run(small_search("olmoe-1b-7b", {"--tp", "2", "--pp", "1", "--vary", "ep=2,4", "--json"}))
          .json();
  REQUIRE(!d.at("ranked").empty());
  for (const Json& layout : d.at("ranked")) {
    const Json& sizes = layout.at("run").at("layout");
    CHECK(sizes.at("tensor_model_parallel_size") == 2);
    CHECK(sizes.at("pipeline_model_parallel_size") == 1);
    const int ep = sizes.at("expert_model_parallel_size").get<int>();
    CHECK((ep == 2 || ep == 4));
  }
}

TEST_CASE("a search in which nothing fits exits 1 and names the nearest") {
  // 79.6 GiB of an H100 less 78 leaves no room for any model state
  const Outcome outcome = run(small_search(
      "olmoe-1b-7b", {"--tp", "1", "--pp", "1", "--min-headroom-gib", "78", "--json"}));
  CHECK(outcome.exit_code == 1);
  const Json d = outcome.json();
  CHECK(d.at("ranked") == Json::array());
  CHECK(d.at("fit").is_null());
  CHECK(d.at("nearest").at("over_gib").get<double>() > 0);
  CHECK(d.at("nearest").at("run").at("model") == "olmoe-1b-7b");
  CHECK(d.at("space").at("fit") == 0);
}

TEST_CASE("what a search needs and does not get is named, all at once") {
  const Outcome outcome = run({"search", "--model", "olmoe-1b-7b", "--json"});
  CHECK(outcome.exit_code == 2);
  std::string keys;
  const Json document = outcome.json();
  for (const Json& error : document.at("errors")) keys += error.at("key").get<std::string>() + " ";
  CHECK(keys == "--system --gpus --seq-length --global-batch-size ");
}

TEST_CASE("bad words of a search are refused with the nearest good one") {
  const Outcome outcome =
      run(small_search("olmoe-1b-7b", {"--precision", "bf16,mxfp9", "--objective", "speed",
                                       "--vary", "tp=1,x", "--fix", "no_such=1"}));
  CHECK(outcome.exit_code == 2);
  for (const std::string part :
       {"mxfp9: unknown precision; did you mean 'mxfp8'?", "speed: unknown objective",
        "must be integer 1..1024, not 'x'", "no_such: unknown key"}) {
    INFO(part);
    CHECK(contains(outcome.err, part));
  }
  const Outcome model = run(small_search("olmoe-1b-7", {}));
  CHECK(model.exit_code == 2);
  CHECK(contains(model.err, "did you mean 'olmoe-1b-7b'?"));
}

TEST_CASE("an unknown kind of export is refused before the search, with the nearest") {
  const Outcome outcome = run(small_search("olmoe-1b-7b", {"--export", "bridg", "folder"}));
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "did you mean 'bridge'?"));
}

TEST_CASE("shards of a search merge into the answer of the whole") {
  const TempDir dir;
  std::vector<std::string> merge{"search", "--json", "--merge"};
  for (const std::string part : {"2/3", "1/3", "3/3"}) {
    merge.push_back((dir.path() / ("part-" + part.substr(0, 1) + ".json")).string());
    CHECK(run(small_search("olmoe-1b-7b", {"--shard", part, "-o", merge.back()})).exit_code == 0);
  }
  const Outcome merged = run(merge);
  REQUIRE(merged.exit_code == 0);
  Json joined = merged.json(), whole = run(small_search("olmoe-1b-7b", {"--json"})).json();
  for (Json* d : {&joined, &whole}) {
    for (const char* key : {"elapsed_s", "candidates_per_s", "evaluated_per_s", "simulated_per_s"})
      d->erase(key);
    for (const char* key : {"simulated", "pruned"}) d->at("space").erase(key);
  }
  CHECK(joined == whole);

  merge.pop_back();
  const Outcome incomplete = run(merge);
  CHECK(incomplete.exit_code == 2);
  CHECK(contains(incomplete.out, "1 of 3 parts missing: 3"));
}

TEST_CASE("what is no shard, and flags that a merge does not take, are refused") {
  const TempDir dir;
  const std::string file = dir.file("whole.json", "{}");
  const Outcome outcome = run({"search", "--top", "3", "--merge", file, "nowhere.json"});
  CHECK(outcome.exit_code == 2);
  for (const char* part :
       {"--top: is not taken with --merge", "whole.json: is no part of a search", "nowhere.json"}) {
    INFO(part);
    CHECK(contains(outcome.err, part));
  }
  const Outcome both = run(small_search("olmoe-1b-7b", {"--shard", "1/2", "--explain", "tp=1"}));
  CHECK(both.exit_code == 2);
  CHECK(contains(both.err, "--explain: tp=1: is not taken with --shard"));
  for (const char* shard : {"0/3", "4/3", "1", "1/3x", "-1/3"})
    CHECK(run(small_search("olmoe-1b-7b", {"--shard", shard})).exit_code == 2);
}

TEST_CASE("a layout that states no SMs is explained with those that the search proposes") {
  const Outcome outcome = run({"search", "--model", "olmoe-1b-7b", "--system", "dgx-h100", "--gpus",
                               "8", "--seq-length", "4096", "--global-batch-size", "64",
                               "--explain", "ep=8,dispatcher=hybridep"});
  CHECK(contains(outcome.out, "with moe.dispatcher_num_sms=32, as searched"));
  CHECK_FALSE(contains(outcome.out, "this choice of dispatcher"));
}

TEST_CASE("an interrupted search prints the best so far, marked incomplete, and exits 1") {
  // 16,384 GPUs, four precisions, every layout simulated: a fast core takes 6 s
  const Outcome outcome = run_program({"/usr/bin/timeout",
                                       "--preserve-status",
                                       "-s",
                                       "INT",
                                       "1",
                                       MOECAST_BINARY,
                                       "search",
                                       "--model",
                                       "deepseek-v3",
                                       "--system",
                                       "gb200-nvl72",
                                       "--gpus",
                                       "16384",
                                       "--seq-length",
                                       "4096",
                                       "--global-batch-size",
                                       "16384",
                                       "--precision",
                                       "bf16,fp8_blockwise,mxfp8,nvfp4",
                                       "--exhaustive",
                                       "--threads",
                                       "1",
                                       "--top",
                                       "2",
                                       "--json"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err.empty());
  const Json d = outcome.json();
  CHECK(d.at("complete") == false);
  CHECK(d.at("scanned_pct").get<double>() <= 100);
}
