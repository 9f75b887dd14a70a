/// Errors of forecasts by fits that did not see the row: summaries by system, model and precision,
/// rank correlation within systems, signs of one-knob changes, coverage of the intervals.
#include <cmath>
#include <map>

#include "report/rows.hpp"
#include "report/validation_summary.hpp"

namespace moecast {
namespace {

using Json = nlohmann::ordered_json;
using LeftOutRows = std::vector<std::optional<LeftOutRow>>;

std::optional<double> error_of(const std::optional<LeftOutRow>& row) {
  if (!row) return std::nullopt;
  return 100.0 * (std::exp(-row->log_error) - 1.0);
}

Json summary_of(const std::vector<MeasuredRow>& rows, const LeftOutRows& left_out) {
  Errors errors;
  for (std::size_t i = 0; i < rows.size(); ++i)
    errors.add(rows[i].tflops_per_gpu, error_of(left_out[i]));
  return errors.summary();
}

std::map<std::string, std::vector<std::size_t>> split_by(const std::vector<MeasuredRow>& rows,
                                                         const std::string& column) {
  std::map<std::string, std::vector<std::size_t>> parts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string value = rows::cell(rows[i], column);
    parts[value.empty() ? "unknown" : value].push_back(i);
  }
  return parts;
}

std::optional<double> rank_correlation(const std::vector<MeasuredRow>& rows,
                                       const LeftOutRows& left_out,
                                       const std::vector<std::size_t>& members) {
  std::vector<double> forecast, measured;
  for (const std::size_t i : members) {
    if (!left_out[i] || !rows[i].tflops_per_gpu) continue;
    measured.push_back(*rows[i].tflops_per_gpu);
    forecast.push_back(measured.back() * std::exp(-left_out[i]->log_error));
  }
  return spearman(forecast, measured);
}

Json by_column(const std::vector<MeasuredRow>& rows, const CrossValidation& cross,
               const std::string& column) {
  Json by = Json::object();
  for (const auto& [name, members] : split_by(rows, column)) {
    Errors out, in;
    for (const std::size_t i : members) {
      out.add(rows[i].tflops_per_gpu, error_of(cross.by_group[i]));
      in.add(rows[i].tflops_per_gpu, error_of(cross.in_sample[i]));
    }
    if (out.absolute.empty()) continue;
    by[name] = out.summary();
    by[name]["in_sample_mape_pct"] = in.summary().at("mape_pct");
    const auto rank = rank_correlation(rows, cross.by_group, members);
    by[name]["spearman"] = rank ? Json(*rank) : Json(nullptr);
  }
  return by;
}

/// Mean over systems, weighted by their rows.
Json spearman_within_system(const Json& by_system) {
  double sum = 0, n = 0;
  for (const auto& [name, part] : by_system.items()) {
    if (!part.at("spearman").is_number()) continue;
    sum += part.at("spearman").get<double>() * part.at("n").get<double>();
    n += part.at("n").get<double>();
  }
  return n > 0 ? Json(sum / n) : Json(nullptr);
}

Json coverage(const LeftOutRows& left_out) {
  int inside = 0, n = 0;
  for (const auto& row : left_out) {
    if (!row) continue;
    ++n;
    inside += std::abs(row->log_error) <= row->spread ? 1 : 0;
  }
  return n > 0 ? Json(100.0 * inside / n) : Json(nullptr);
}

/// Each pair of an A/B group as fits forecast it that saw neither of the two.
Json signs(const std::vector<MeasuredRow>& rows, const LeftOutRows& left_out) {
  std::vector<ValidatedRow> forecasts(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    forecasts[i].id = rows[i].id;
    if (left_out[i] && rows[i].tflops_per_gpu) {
      forecasts[i].predicted_tflops_per_gpu =
          *rows[i].tflops_per_gpu * std::exp(-left_out[i]->log_error);
    }
  }
  return ab_score(ab_groups(rows, forecasts));
}

}  // namespace

Json cross_validation_summary(const std::vector<MeasuredRow>& rows, const CrossValidation& cross) {
  Json out = summary_of(rows, cross.by_group);
  out["leave_one_release_out"] = summary_of(rows, cross.by_release);
  out["in_sample"] = summary_of(rows, cross.in_sample);
  Json by;
  for (const char* column : {"system", "model", "precision"})
    by[column] = by_column(rows, cross, column);
  out["spearman_within_system"] = spearman_within_system(by["system"]);
  out["interval_coverage_pct"] = coverage(cross.by_group);
  out["fitted_parameters"] = cross.fitted_parameters;
  out["ab"] = signs(rows, cross.by_group);
  Json each = Json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!cross.by_group[i]) continue;
    each.push_back({{"id", rows[i].id},
                    {"error_pct", *error_of(cross.by_group[i])},
                    {"error_without_release_pct", *error_of(cross.by_release[i])},
                    {"in_sample_error_pct", *error_of(cross.in_sample[i])},
                    {"half_width_pct", 100.0 * (std::exp(cross.by_group[i]->spread) - 1.0)}});
  }
  out["rows"] = std::move(each);
  out["by"] = by;
  return out;
}

}  // namespace moecast
