// Published recipes against the search: for every measured row with an exactly known layout, is the
// first of the search at least as fast, and where does the recipe stand?
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "moecast/search.hpp"
#include "moecast/validation.hpp"

namespace {

using namespace moecast;

/// The recipe's question with its layout searched again: model, cluster, batch, precision,
/// container, features, routing and optimizer stay.
SearchRequest question(const Run& recipe) {
  SearchRequest r;
  r.base = recipe;
  r.base.layout.pipeline_split = PipelineSplit::automatic;
  r.base.pipeline_model_parallel_layout.clear();
  r.base.layout.offload_modules = {};
  r.base.layout.optimizer_offload_fraction = 0;
  r.precisions = {recipe.layout.precision};
  r.explain = recipe;
  return r;
}

struct Score {
  bool legal = false, fits = false, beaten = false;
  std::string row;
};

Score score(const MeasuredRow& row, const SearchResult& found) {
  Score s;
  if (!found.explained || found.ranked.empty()) {
    for (const auto& [reason, count] : found.rejected)
      fmt::print(stderr, "{}: {} candidates rejected: {}\n", row.id, count, reason);
    if (found.explained) {
      fmt::print(stderr, "{}: the recipe: {}: {}\n", row.id, found.explained->verdict,
                 found.explained->message);
    }
    return s;
  }
  const Explanation& x = *found.explained;
  const double best = found.ranked.front().step_time.value;
  s.legal = x.rules.empty() && x.step_time.value > 0;
  s.fits = s.legal && x.over.value <= 0;
  s.beaten = s.legal && best <= x.step_time.value * (1 + 1e-9);
  std::string stands = x.rank > 0 ? fmt::format("rank {}", x.rank) : x.verdict + ": " + x.message;
  std::replace(stands.begin(), stands.end(), '|', '/');
  s.row = fmt::format("| {} | {} | {:.3f} | {:.3f} | {:.3f} | {} |", row.id,
                      row.tflops_per_gpu ? fmt::format("{:.0f}", *row.tflops_per_gpu) : "",
                      x.step_time.value, best, x.step_time.value / best, stands);
  return s;
}

bool is_asked_about(const MeasuredRow& row) {
  const auto release = row.columns.find("release");
  return row.run && release != row.columns.end() && release->second.starts_with("26.") &&
         release->second >= "26.04";
}

int check(const std::string& file, const std::string& only) {
  const auto rows =
      read_measured_rows(file, {"task=pretrain", "config_confidence=exact", "status=ok"});
  for (const Diagnostic& d : rows.problems()) fmt::print(stderr, "{}\n", to_string(d));
  if (!rows) return 2;
  int asked = 0, bad = 0;
  fmt::print(
      "| row | measured TFLOPS | recipe s | best s | recipe / best | the recipe |\n"
      "| --- | --- | --- | --- | --- | --- |\n");
  for (const MeasuredRow& row : rows.value()) {
    if (!is_asked_about(row) || row.id.find(only) == std::string::npos) continue;
    ++asked;
    const auto found = search(question(*row.run));
    for (const Diagnostic& d : found.problems()) fmt::print(stderr, "{}\n", to_string(d));
    const Score s = found ? score(row, found.value()) : Score{};
    fmt::print("{}\n", s.row.empty() ? "| " + row.id + " | nothing found | | | | |" : s.row);
    std::fflush(stdout);
    if (s.legal && s.fits && s.beaten) continue;
    ++bad;
    fmt::print(stderr, "{}: the recipe {}{}{}\n", row.id, s.legal ? "" : "is refused, ",
               s.fits ? "" : "does not fit, ", s.beaten ? "" : "is not matched");
  }
  fmt::print(stderr,
             "{} recipes, {} of them refused, too large, or faster than the search's best\n", asked,
             bad);
  return bad == 0 && asked > 0 ? 0 : 1;
}

}  // namespace

/// moecast_recipes [PART OF AN ID]
int main(int argc, char** argv) {
  return check(MOECAST_SOURCE_DIR "/hwdb/measured/training_steps.csv", argc > 1 ? argv[1] : "");
}
