// moecast kernel and moecast calibrate as a user runs them.
#include <fstream>
#include <sstream>

#include "catch.hpp"
#include "cli/run_files.hpp"
#include "cli/run_moecast.hpp"
#include "temp_dir.hpp"

using namespace moecast::test;
using Json = nlohmann::json;

namespace {
std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}
}  // namespace

TEST_CASE("kernel prices one GEMM with its limit and its source") {
  const Outcome outcome = run({"kernel", "gemm", "m=4096", "n=5120", "k=2048", "precision=bf16",
                               "pass=forward", "--system", "dgx-h200", "--json"});
  REQUIRE(outcome.exit_code == 0);
  const Json d = outcome.json();
  CHECK(d.at("schema") == "moecast/kernel@1");
  CHECK(d.at("class") == "gemm");
  const double us = d.at("time_us").get<double>();
  CHECK_THAT(d.at("tflops").get<double>(), WithinRel(2.0 * 4096 * 5120 * 2048 / us / 1e6, 1e-9));
  CHECK_THAT(d.at("fraction_of_limit").get<double>(),
             WithinRel(d.at("tflops").get<double>() / 989, 1e-9));
  CHECK_FALSE(d.at("source").get<std::string>().empty());
}

TEST_CASE("kernel prices the rows of a CSV and carries their other columns through") {
  const TempDir dir;
  const std::string csv = dir.file("k.csv",
                                   "id,class,m,n,k,pass,ranks,bytes,note\n"
                                   "a,gemm,4096,4096,4096,wgrad,,,mine\n"
                                   "b,all_gather,,,,,2,1048576,\n");
  const Outcome outcome = run({"kernel", "--csv", csv, "--system", "h200-sxm", "--json"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const Json rows = outcome.json().at("rows");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].at("note") == "mine");
  CHECK(rows[1].at("id") == "b");
  for (const Json& row : rows) CHECK(row.at("predicted_time_us").get<double>() > 0);
  const Outcome table = run({"kernel", "--csv", csv, "--system", "h200-sxm"});
  CHECK(table.out.rfind("id,class,m,n,k,pass,ranks,bytes,note,predicted_time_us\n", 0) == 0);
}

TEST_CASE("kernel names every wrong row of a CSV by its line") {
  const TempDir dir;
  const std::string csv = dir.file("k.csv", "class,m,n,k\ngem,1,2,3\ngemm,1,,3\n");
  const Outcome outcome = run({"kernel", "--csv", csv, "--system", "dgx-h200"});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "k.csv:2"));
  CHECK(contains(outcome.err, "did you mean 'gemm'"));
  CHECK(contains(outcome.err, "k.csv:3: n: gemm needs this key"));
}

TEST_CASE("kernel answers a wrong command line with every problem at once") {
  const Outcome outcome = run({"kernel", "gemm", "m=4", "nn=3", "k", "--system", "dgx-h200"});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "k: is not key=value"));
  CHECK(contains(outcome.err, "nn: gemm has no such key"));
  CHECK(run({"kernel", "gemm", "m=4", "n=3", "k=2"}).exit_code == 2);  // no --system
  CHECK(run({"kernel", "--system", "dgx-h200"}).exit_code == 2);
  CHECK(run({"kernel", "gemm", "m=4", "n=3", "k=2", "--system", "nowhere"}).exit_code == 2);
}

TEST_CASE("calibrate refits samples without a GPU and writes a profile that estimate accepts") {
  const TempDir dir;
  std::string samples =
      R"({"schema":"moecast/samples@1","device":{"name":"NVIDIA H200","compute_capability":9.0,)"
      R"("sms":132,"date":"2026-11-29"},"samples":[)";
  // a residual add that streams 4 TB/s after 3 us
  for (int i = 0; i < 12; ++i) {
    const double rows = 1024.0 * (1 << i % 6), cols = i < 6 ? 4096 : 7168;
    samples += std::string(i == 0 ? "" : ",") + R"({"class":"residual","keys":{"rows":)" +
               std::to_string(rows) + R"(,"cols":)" + std::to_string(cols) + R"(},"median_us":)" +
               std::to_string(3.362 + 6 * rows * cols / 4e6) + "}";
  }
  const std::string file = dir.file("node.samples.json", samples + "]}");
  const std::string profile = (dir.path() / "node.yaml").string();
  const Outcome outcome =
      run({"calibrate", "--fit", file, "-o", profile, "--compare", "dgx-h200", "--json"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const Json d = outcome.json();
  const Json curve = d.at("curves").at(0);
  CHECK(curve.at("name") == "memory_bound.elementwise");
  CHECK(curve.at("accepted") == true);
  const double fraction =
      curve.at("parameters").at("memory_bound.elementwise.fraction").at("value");
  CHECK_THAT(fraction, WithinRel(4.0 / 4.8, 0.01));
  CHECK(d.at("compare").at(0).at("kernel") == "residual");
  const Outcome use =
      run({"kernel", "residual", "rows=65536", "cols=8192", "--system", profile, "--json"});
  REQUIRE(use.exit_code == 0);
  CHECK(contains(use.json().at("source"), "measured"));
  const Outcome estimate = run({"estimate", dir.file("run.yaml", kSmallRun), "--set",
                                "cluster.system=" + profile, "--json"});
  CHECK(estimate.exit_code == 0);
}

TEST_CASE("calibrate refuses bad samples and unknown sections, and writes nothing") {
  const TempDir dir;
  const std::string file =
      dir.file("bad.json", R"({"schema":"moecast/samples@1","device":{},"samples":[{}]})");
  const std::string profile = (dir.path() / "node.yaml").string();
  const Outcome outcome = run({"calibrate", "--fit", file, "-o", profile});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "device.name"));
  CHECK(contains(outcome.err, "samples[0].class"));
  CHECK(text_of(profile).empty());
  const Outcome section = run({"calibrate", "-o", profile, "--only", "gem"});
  CHECK(section.exit_code == 2);
  CHECK(contains(section.err, "did you mean 'gemm'"));
}

#ifndef MOECAST_HAS_CUDA
TEST_CASE("calibrate without CUDA says how to get it and exits 3") {
  const TempDir dir;
  const Outcome outcome = run({"calibrate", "-o", (dir.path() / "node.yaml").string()});
  CHECK(outcome.exit_code == 3);
  CHECK(contains(outcome.err, "CUDA"));
  CHECK(contains(outcome.err, "--fit"));
}
#endif
