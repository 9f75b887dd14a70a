// The ratchet: errors on rows that a fit did not see may not grow, and the published table is
// today's.
#include <cmath>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "cli/run_moecast.hpp"

using namespace moecast::test;
using Json = nlohmann::json;

namespace {

const std::string kRows = std::string(MOECAST_SOURCE_DIR) + "/hwdb/measured/";

Json validated(std::vector<std::string> args) {
  args.insert(args.begin(), "validate");
  args.push_back("--json");
  const Outcome outcome = run(args);
  REQUIRE(outcome.exit_code == 0);
  return outcome.json();
}

std::string page() {
  std::ifstream file(std::string(MOECAST_SOURCE_DIR) + "/docs/accuracy.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// "left out release         MAPE 5.2 %": the figure after `name` in docs/accuracy.md, the first
/// one after `from`.
double published(const std::string& name, const std::string& from) {
  const std::string text = page();
  const auto line = text.find(name, text.find(from));
  REQUIRE(line != std::string::npos);
  return std::stod(text.substr(text.find("MAPE ", line) + 5));
}

}  // namespace

TEST_CASE(
    "are left-out errors of the published steps no larger than they were, and as published?") {
  const Json cross =
      validated({kRows + "training_steps.csv", "--where", "task=pretrain", "--where",
                 "config_confidence=exact", "--where", "status=ok", "--cross-validate"})
          .at("cross_validation");
  const auto at_most = [](const Json& part, const char* key, double limit) {
    CAPTURE(key);
    CHECK(part.at(key).get<double>() <= limit);
  };
  CHECK(cross.at("n") == 212);
  at_most(cross, "mape_pct", 5.2);
  at_most(cross, "median_ape_pct", 3.8);
  at_most(cross, "p90_ape_pct", 11);
  at_most(cross.at("leave_one_release_out"), "mape_pct", 4.5);
  at_most(cross.at("leave_one_release_out"), "p90_ape_pct", 9.2);
  at_most(cross.at("in_sample"), "mape_pct", 3.5);
  CHECK(cross.at("spearman_within_system").get<double>() >= 0.96);
  CHECK(cross.at("interval_coverage_pct").get<double>() >= 85);
  CHECK(cross.at("interval_coverage_pct").get<double>() <= 95);
  CHECK(cross.at("ab").at("right").get<int>() >= 34);
  const double left_out = published("left out (model, system)", "accuracy:begin");
  CHECK(std::abs(left_out - cross.at("mape_pct").get<double>()) < 0.15);
}

TEST_CASE("is the memory of published runs forecast: peaks, one-knob changes, out of memory?") {
  const Json study =
      validated({kRows + "training_steps.csv", "--where", "release=v1.2 (torch 26.01, TE 2.11)"})
          .at("summary")
          .at("memory");
  CHECK(study.at("n") == 22);
  CHECK(study.at("mape_pct").get<double>() <= 0.05);
  const Json all = validated({kRows + "training_steps.csv"}).at("summary");
  const Json& more = all.at("memory").at("more");
  CHECK(more.at("ab_deltas").at("right") == more.at("ab_deltas").at("n"));
  CHECK(more.at("ab_deltas").at("n") == 23);
  CHECK(more.at("peak").at("n") == 47);
  CHECK(more.at("peak").at("mape_pct").get<double>() <= 0.45);
  CHECK(more.at("peak").at("max_ape_pct").get<double>() <= 2.6);
  CHECK(more.at("ran_and_fits").at("right").get<int>() >= 339);
  CHECK(all.at("oom") == Json{{"n", 8}, {"right", 8}});
}

TEST_CASE("are steps of real H200s forecast through the measured profile, class by class?") {
  const Json all = validated({kRows + "h200_runs.csv", "--kernels", kRows + "h200_kernels.csv"});
  CHECK(all.at("summary").at("mape_pct").get<double>() <= 3.8);
  CHECK(all.at("summary").at("memory").at("mape_pct").get<double>() <= 0.1);
  const Json& classes = all.at("kernel_classes");
  for (const char* name :
       {"dense_gemm", "grouped_gemm", "attention", "permute", "memory_bound", "communication"}) {
    CAPTURE(name);
    CHECK(classes.at(name).at("mape_pct").get<double>() <= 8);
  }
  CHECK(classes.at("busy_without_communication").at("mape_pct").get<double>() <= 4);
}
