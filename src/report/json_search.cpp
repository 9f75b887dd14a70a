#include <cmath>
#include <cstdint>

#include "layout/run_file.hpp"
#include "report/report.hpp"

namespace moecast {
namespace {

Json layout_json(const RankedLayout& layout) {
  Json row = {{"run", run_to_json(layout.run)},
              {"step_time_s", layout.step_time.value},
              {"tflops_per_gpu", layout.tflops_per_gpu},
              {"peak_gib", in_gib(layout.peak)},
              {"peak_reserved_gib", in_gib(layout.peak_reserved)},
              {"wall", to_string(layout.wall)},
              {"why", layout.why}};
  if (layout.worst_step_time.value > 0) row["worst_step_time_s"] = layout.worst_step_time.value;
  return row;
}

Json explanation_json(const Explanation& x) {
  Json where = Json::object();
  for (const auto& [part, seconds] : x.where) where[part + "_s"] = seconds;
  return {{"run", run_to_json(x.run)},
          {"verdict", x.verdict},
          {"message", x.message},
          {"rules", x.rules},
          {"rank", x.rank > 0 ? Json(x.rank) : Json()},
          {"over_gib", in_gib(x.over)},
          {"step_time_s", x.step_time.value},
          {"slower_pct", x.slower_pct},
          {"more_than_first", where}};
}

/// How a row compares with the first, and whether the error bar can say so.
Json against_first(const RankedLayout& row, const RankedLayout& first) {
  if (!row.slower_half_width) return Json::object();
  return {{"slower_pct", 100 * (row.value / first.value - 1)},
          {"slower_half_width_pct", 100 * std::expm1(*row.slower_half_width)},
          {"told_apart_from_first", row.told_apart_from(first)}};
}

double per_second(std::uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

}  // namespace

Json search_json(const SearchResult& r) {
  Json ranked = Json::array(), pareto = Json::array();
  for (std::size_t i = 0; i < r.ranked.size(); ++i) {
    Json row = {{"rank", i + 1}};
    row.update(layout_json(r.ranked[i]));
    row.update(against_first(r.ranked[i], r.ranked.front()));
    ranked.push_back(row);
  }
  for (const RankedLayout& layout : r.pareto) pareto.push_back(layout_json(layout));
  Json rejected = Json::object();
  for (const auto& [reason, count] : r.rejected) rejected[reason] = count;
  Json document = {{"schema", "moecast/search@1"},
                   {"complete", r.complete},
                   {"space",
                    {{"candidates", r.candidates},
                     {"legal", r.legal},
                     {"evaluated", r.evaluated},
                     {"fit", r.fit},
                     {"simulated", r.simulated},
                     {"pruned", r.pruned}}},
                   {"elapsed_s", r.elapsed_s},
                   {"candidates_per_s", per_second(r.candidates, r.elapsed_s)},
                   {"evaluated_per_s", per_second(r.evaluated, r.elapsed_s)},
                   {"simulated_per_s", per_second(r.simulated, r.elapsed_s)},
                   {"fit", r.any_fit ? layout_json(r.first_fit) : Json()},
                   {"ranked", ranked},
                   {"pareto", pareto},
                   {"rejected", rejected}};
  if (!r.any_fit) {
    document["nearest"] = {{"run", r.nearest.run.gpus > 0 ? run_to_json(r.nearest.run) : Json()},
                           {"over_gib", in_gib(r.nearest.over)},
                           {"change", r.nearest.change}};
  }
  if (r.explained) document["explain"] = explanation_json(*r.explained);
  if (!r.complete) document["scanned_pct"] = 100 * r.scanned;
  return document;
}

}  // namespace moecast
