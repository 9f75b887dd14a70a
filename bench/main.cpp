// Runs the cases and holds them against bench/goals.yaml. Exit 1: a case takes more than kTolerated
// times its goal.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <map>

#include "core/document.hpp"

namespace {

using namespace moecast;

constexpr double kTolerated = 2;  // an older machine is not a slow program

using Goals = std::map<std::string, double>;  // microseconds by case

Result<Goals> read_goals(const std::string& path) {
  const auto document = read_document(path);
  if (!document) return document.problems();
  Diagnostics problems;
  check_schema(document.value(), "goals", 1, problems);
  MapReader reader(document.value(), document.value().root, "", problems);
  reader.ignore("schema");
  Goals goals;
  if (const Node* list = reader.require("goals_us")) {
    MapReader cases(document.value(), *list, "goals_us", problems);
    for (const auto& entry : list->entries) goals[entry.key] = cases.required_number(entry.key);
  }
  reader.finish();
  if (!problems.empty()) return problems;
  return goals;
}

/// Google Benchmark's table, then CPU time against goal: every case runs on one thread.
class GoalReporter : public benchmark::ConsoleReporter {
 public:
  explicit GoalReporter(Goals goals) : goals_(std::move(goals)) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      const double us =
          1e6 * run.GetAdjustedCPUTime() / benchmark::GetTimeUnitMultiplier(run.time_unit);
      times_[run.run_name.function_name] = us;
    }
  }

  /// False when a case is far over its goal.
  bool judge() const {
    bool good = true;
    fmt::print("\n{:<28}{:>14}{:>14}{:>10}\n", "case", "CPU us", "goal us", "ratio");
    for (const auto& [name, us] : times_) {
      const auto goal = goals_.find(name);
      if (goal == goals_.end()) {
        fmt::print("{:<28}{:>14.2f}{:>14}\n", name, us, "-");
        continue;
      }
      const double ratio = us / goal->second;
      good = good && ratio <= kTolerated;
      fmt::print("{:<28}{:>14.2f}{:>14.0f}{:>10.2f}{}\n", name, us, goal->second, ratio,
                 ratio <= 1            ? ""
                 : ratio <= kTolerated ? "  over"
                                       : "  FAR OVER");
    }
    return good;
  }

 private:
  Goals goals_;
  std::map<std::string, double> times_;
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const auto goals = read_goals(MOECAST_SOURCE_DIR "/bench/goals.yaml");
  for (const Diagnostic& problem : goals.problems()) fmt::print(stderr, "{}\n", to_string(problem));
  if (!goals) return 2;
  GoalReporter reporter(goals.value());
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return reporter.judge() ? 0 : 1;
}
