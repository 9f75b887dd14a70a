// Did any reported number move? Every NAME.yaml here is a run; NAME.json is its forecast, or that
// of a sweep. What differs, or is missing, is written to NAME.new.json; accept.sh makes the new
// documents the expected ones.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>

#include "catch.hpp"
#include "layout/run_file.hpp"
#include "moecast/evaluator.hpp"
#include "problem_of.hpp"
#include "report/report.hpp"
#include "report/whatif_report.hpp"
#include "temp_dir.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(MOECAST_TEST_DIR) / "golden";

/// Six significant digits: enough to see a change of any formula, few enough for another compiler's
/// last bit.
double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}
void round_numbers(Json& tree) {
  if (tree.is_number_float()) tree = rounded(tree.get<double>());
  if (tree.is_structured()) {
    for (auto& child : tree) round_numbers(child);
  }
}

Run run_named(const std::string& name) {
  return must(read_run((kFolder / (name + ".yaml")).string()));
}

/// A small sweep: its layout searched again on more GPUs and on a wider network.
Json sweep_of(const std::string& name) {
  WhatIfRequest r;
  r.start = run_named(name);
  r.base.base = *r.start;
  r.base.precisions = {r.start->layout.precision};
  r.base.vary_micro_batch_size = false;
  r.base.top = 1;
  r.base.fix = {{"layout.tensor_model_parallel_size", "1"},
                {"layout.context_parallel_size", "1"},
                {"layout.expert_tensor_parallel_size", "1"},
                {"layout.virtual_pipeline_model_parallel_size", "1"},
                {"moe.dispatcher", "alltoall"},
                {"cuda_graph.impl", "none"}};
  r.axes = {{"cluster.gpus", {"16", "32"}}, {"system.nic_bandwidth_gb_per_s", {"x1", "x2"}}};
  r.tokens = 1e12;
  r.prices = {{"", 2.5}};
  return whatif_json(r, must(whatif(r)));
}

/// Every document, by name.
std::map<std::string, std::function<Json()>> documents() {
  std::map<std::string, std::function<Json()>> found;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".yaml")
      found[name] = [name] { return estimate_json(must(estimate(run_named(name))), false); };
  }
  found["whatif-qwen3-30b-a3b-h100"] = [] { return sweep_of("qwen3-30b-a3b-h100-16-alltoall"); };
  return found;
}

/// "/time/compute_s: 1.25 -> 1.5" for everything that moved.
std::string differences(const std::string& expected, const std::string& actual) {
  const Json before = Json::parse(expected, nullptr, false), after = Json::parse(actual);
  if (before.is_discarded()) return "not readable as JSON\n";
  const Json was = before.flatten(), is = after.flatten();
  std::string text;
  for (const auto& [key, value] : is.items()) {
    if (!was.contains(key)) text += key + ": new, " + value.dump() + "\n";
    if (was.contains(key) && was[key] != value)
      text += key + ": " + was[key].dump() + " -> " + value.dump() + "\n";
  }
  for (const auto& [key, value] : was.items()) {
    if (!is.contains(key)) text += key + ": gone, was " + value.dump() + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("no reported number of the golden runs has moved") {
  const auto all = documents();
  REQUIRE(all.size() >= 9);
  for (const auto& [name, make] : all) {
    const fs::path expected = kFolder / (name + ".json"), actual = kFolder / (name + ".new.json");
    Json document = make();
    round_numbers(document);
    const std::string now = document.dump(1) + "\n";
    const std::string before = fs::exists(expected) ? read_file(expected) : "null";
    if (now == before) {
      fs::remove(actual);
      continue;
    }
    std::ofstream(actual, std::ios::binary) << now;
    FAIL_CHECK(expected.string() << (fs::exists(expected) ? " differs from " : " is missing; made ")
                                 << actual.string() << "\naccept: tests/golden/accept.sh\n"
                                 << (fs::exists(expected) ? differences(before, now) : ""));
  }
}

TEST_CASE("no golden document is left without its run") {
  const auto all = documents();
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(".json") || file.ends_with(".new.json")) continue;
    INFO(file);
    CHECK(all.contains(entry.path().stem().string()));
  }
}

TEST_CASE("a golden document names every value that moved, appeared or went") {
  CHECK(differences(R"({"a": {"b": 1, "c": 2}, "e": 5})", R"({"a": {"b": 1, "c": 3}, "d": 4})") ==
        "/a/c: 2 -> 3\n/d: new, 4\n/e: gone, was 5\n");
  Json tree = {{"x", 1.23456789}, {"y", {2.0, 0.000123456789}}};
  round_numbers(tree);
  CHECK(tree == Json{{"x", 1.23457}, {"y", {2.0, 0.000123457}}});
}
