// Did any reported number move? Every NAME.yaml here is a run; NAME.json is its forecast. What
// differs, or is missing, is written to NAME.new.json; accept.sh makes the new documents the
// expected ones.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

#include "catch.hpp"
#include "layout/run_file.hpp"
#include "moecast/evaluator.hpp"
#include "problem_of.hpp"
#include "report/report.hpp"
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

std::string forecast_of(const fs::path& run) {
  Json document = estimate_json(must(estimate(must(read_run(run.string())))), false);
  round_numbers(document);
  return document.dump(1) + "\n";
}

/// Names of the runs, sorted.
std::set<std::string> names() {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".yaml") found.insert(entry.path().stem().string());
  }
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
  REQUIRE(names().size() >= 8);
  for (const std::string& name : names()) {
    const fs::path expected = kFolder / (name + ".json"), actual = kFolder / (name + ".new.json");
    const std::string now = forecast_of(kFolder / (name + ".yaml"));
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
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(".json") || file.ends_with(".new.json")) continue;
    INFO(file);
    CHECK(names().contains(entry.path().stem().string()));
  }
}

TEST_CASE("a golden document names every value that moved, appeared or went") {
  CHECK(differences(R"({"a": {"b": 1, "c": 2}, "e": 5})", R"({"a": {"b": 1, "c": 3}, "d": 4})") ==
        "/a/c: 2 -> 3\n/d: new, 4\n/e: gone, was 5\n");
  Json tree = {{"x", 1.23456789}, {"y", {2.0, 0.000123456789}}};
  round_numbers(tree);
  CHECK(tree == Json{{"x", 1.23457}, {"y", {2.0, 0.000123457}}});
}
