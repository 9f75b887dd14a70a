#include <algorithm>

#include "catch.hpp"
#include "cli/run_files.hpp"
#include "cli/run_moecast.hpp"
#include "temp_dir.hpp"

using namespace moecast::test;
using Json = nlohmann::json;

namespace {

/// A sweep whose points take no time.
std::vector<std::string> small_sweep(std::vector<std::string> more) {
  std::vector<std::string> args{"whatif",
                                "--model",
                                "olmoe-1b-7b",
                                "--system",
                                "dgx-h100",
                                "--seq-length",
                                "4096",
                                "--global-batch-size",
                                "128",
                                "--tokens",
                                "3e12",
                                "--tp",
                                "1",
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

TEST_CASE("a sweep over GPUs is a table on stdout, and one JSON document with --json") {
  const std::vector<std::string> gpus{"--vary", "cluster.gpus=8,16", "--price-per-gpu-hour", "2.5"};
  const Outcome text = run(small_sweep(gpus));
  CHECK(text.exit_code == 0);
  CHECK(text.err.empty());
  for (const char* part : {"What if: olmoe-1b-7b, 3.00 T tokens", "days", "GPU-hours", "cost"})
    CHECK(contains(text.out, part));
  std::vector<std::string> with_json = gpus;
  with_json.emplace_back("--json");
  const Json d = run(small_sweep(with_json)).json();
  CHECK(d.at("schema") == "moecast/whatif@1");
  REQUIRE(d.at("points").size() == 2);
  const Json& point = d.at("points").at(1);
  CHECK(point.at("cost").get<double>() == 2.5 * point.at("gpu_hours").get<double>());
}

TEST_CASE("a point's run is forecast the same by estimate, system figures included") {
  const TempDir dir;
  const Json d = run(small_sweep({"--vary", "cluster.gpus=16", "--vary",
                                  "system.nic_bandwidth_gb_per_s=x0.5", "--json"}))
                     .json();
  const Json& point = d.at("points").at(0);
  REQUIRE(point.at("runs") == true);
  const std::string file = dir.file("run.json", point.at("run").dump());
  const Json forecast = run({"estimate", file, "--json"}).json();
  CHECK(forecast.at("step_time_s") == point.at("step_time_s"));
  CHECK(forecast.at("step_time_s_p95") == point.at("step_time_s_p95"));
}

TEST_CASE("-o FILE.csv writes the table, and a RUN may be the start") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun), csv = (dir.path() / "t.csv").string();
  const Outcome kept = run({"whatif", file, "--keep-layout", "--vary", "cluster.gpus=8,16,32",
                            "--tokens", "1e12", "-o", csv});
  CHECK(kept.exit_code == 0);
  const std::string table = read_file(csv);
  CHECK(table.starts_with("cluster.gpus,runs,reason,"));
  CHECK(std::count(table.begin(), table.end(), '\n') == 4);
  CHECK(contains(table, "\n32,true,,32,run,ep8 mbs1 alltoall,bf16,"));
}

TEST_CASE("a sweep exits 1 when nothing runs anywhere, or no point keeps the days") {
  const Outcome nothing = run(small_sweep({"--vary", "cluster.gpus=12", "--json"}));
  CHECK(nothing.exit_code == 1);
  CHECK(nothing.json().at("reference").is_null());
  CHECK(nothing.json().at("points").at(0).at("runs") == false);
  const Outcome slow = run(small_sweep({"--vary", "cluster.gpus=8", "--days", "0.001"}));
  CHECK(slow.exit_code == 1);
  CHECK(contains(slow.out, "No point takes at most 0.001 days"));
}

TEST_CASE("bad words of a sweep are all reported, exit 2") {
  const Outcome outcome =
      run(small_sweep({"--vary", "cluster.gpus", "--vary", "precision=bf16", "--vary",
                       "precision=mxfp8", "--price-per-gpu-hour", "much", "--keep-layout"}));
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out.empty());
  for (const char* part : {"is not key=v1,v2", "precision: is given twice", "is not a price",
                           "--keep-layout: needs a RUN"}) {
    INFO(part);
    CHECK(contains(outcome.err, part));
  }
  const Outcome missing = run({"whatif", "--model", "olmoe-1b-7b"});
  CHECK(missing.exit_code == 2);
  CHECK(contains(missing.err, "--vary"));
  CHECK(contains(missing.err, "--tokens"));
}
