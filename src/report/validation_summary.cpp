#include "report/validation_summary.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "report/memory_figures.hpp"
#include "report/rows.hpp"

namespace moecast {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kErrorWithoutForecast = 100.0;

Json json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::optional<double> mean(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

Json by_column(const std::vector<MeasuredRow>& rows, const std::vector<ValidatedRow>& validated,
               const std::string& column) {
  std::map<std::string, Errors> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string value = rows::cell(rows[i], column);
    groups[value.empty() ? "unknown" : value].add(validated[i].measured_tflops_per_gpu,
                                                  validated[i].error_pct);
  }
  Json by = Json::object();
  for (const auto& [name, errors] : groups) {
    if (errors.absolute.empty()) continue;
    by[name] = errors.summary();
    by[name].erase("p90_ape_pct");
  }
  return by;
}

Json out_of_memory(const std::vector<MeasuredRow>& rows,
                   const std::vector<ValidatedRow>& validated) {
  int n = 0, right = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows::cell(rows[i], "status") != "oom") continue;
    ++n;
    if (validated[i].status == "does_not_fit") ++right;
  }
  return {{"n", n}, {"right", right}};
}

/// Apart by no more than roundings: rows that differ in nothing a forecast knows.
bool tied(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> rank(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && tied(values[order[last + 1]], values[order[first]])) ++last;
    for (std::size_t i = first; i <= last; ++i)
      rank[order[i]] = static_cast<double>(first + last) / 2.0;
    first = last + 1;
  }
  return rank;
}

}  // namespace

void Errors::add(const std::optional<double>& measured, const std::optional<double>& error) {
  if (!measured) return;
  absolute.push_back(error ? std::abs(*error) : kErrorWithoutForecast);
  if (error) signed_.push_back(*error);
}

Json Errors::summary() const {
  return {{"n", absolute.size()},
          {"mape_pct", json(mean(absolute))},
          {"median_ape_pct", json(median(absolute))},
          {"p90_ape_pct", json(nearest_rank(absolute, 90.0))},
          {"bias_pct", json(mean(signed_))}};
}

Json ab_score(const Json& groups) {
  int n = 0, right = 0;
  for (const Json& group : groups) {
    for (const Json& pair : group.at("pairs")) {
      if (pair.at("sign_right").is_null()) continue;
      ++n;
      if (pair.at("sign_right").get<bool>()) ++right;
    }
  }
  return {{"n", n}, {"right", right}};
}

double error_pct(double predicted, double measured) { return 100.0 * (predicted / measured - 1.0); }

std::optional<double> nearest_rank(std::vector<double> values, double percent) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double middle =
      (static_cast<double>(x.size()) - 1.0) / 2.0;  // mean of the ranks, ties or not
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - middle) * (y[i] - middle);
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

namespace {

/// Seconds of a step by class, as profiles of real steps can be held against them.
std::map<std::string, double> kernel_seconds(const Estimate& e) {
  const TimeBreakdown& t = e.time;
  return {{"dense_gemm_s", t.dense_gemm.value},
          {"grouped_gemm_s", t.grouped_gemm.value},
          {"attention_s", t.attention.value},
          {"permute_s", t.permute.value},
          {"memory_bound_s", t.memory_bound.value},
          {"quantize_s", t.quantize.value},
          {"optimizer_s", t.optimizer.value},
          // a receive waits in its kernel for the other rank: the bubble of a pipeline is in it
          {"comm_s", (t.ep_comm_total + t.tp_comm_exposed + t.cp_comm_exposed + t.pp_comm_exposed +
                      t.dp_comm_total + t.pipeline_bubble)
                         .value},
          {"host_exposed_s", t.host_exposed.value}};
}

}  // namespace

void compare(const MeasuredRow& row, const Estimate& estimate, ValidatedRow& out) {
  out.predicted_tflops_per_gpu = estimate.tflops_per_gpu;
  if (row.tflops_per_gpu) out.error_pct = error_pct(estimate.tflops_per_gpu, *row.tflops_per_gpu);
  out.kernels = kernel_seconds(estimate);
  compare_memory(row, estimate, out);
}

Json validation_summary(const std::vector<MeasuredRow>& rows,
                        const std::vector<ValidatedRow>& validated, const Json& groups) {
  Errors time, memory;
  std::vector<double> predicted, measured;
  int forecasts = 0;
  for (const ValidatedRow& row : validated) {
    time.add(row.measured_tflops_per_gpu, row.error_pct);
    memory.add(row.measured_peak_gib, row.memory_error_pct);
    if (row.predicted_tflops_per_gpu) ++forecasts;
    if (row.predicted_tflops_per_gpu && row.measured_tflops_per_gpu) {
      predicted.push_back(*row.predicted_tflops_per_gpu);
      measured.push_back(*row.measured_tflops_per_gpu);
    }
  }
  Json summary = time.summary();
  summary["spearman"] = json(spearman(predicted, measured));
  summary["memory"] = memory.summary();
  summary["memory"]["more"] = memory_summary(rows, validated);
  summary["oom"] = out_of_memory(rows, validated);
  summary["ab"] = ab_score(groups);
  summary["coverage"] = {{"n", validated.size()}, {"forecast", forecasts}};
  for (const char* column : {"system", "model", "precision"})
    summary["by"][column] = by_column(rows, validated, column);
  return summary;
}

}  // namespace moecast
