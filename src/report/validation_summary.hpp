#pragma once
/// Errors of forecasts against measured rows. Pure functions: rows and forecasts in, numbers out.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "moecast/validation.hpp"

namespace moecast {

/// 100 (predicted / measured - 1).
double error_pct(double predicted, double measured);

/// Fills the predicted and measured figures and their errors.
void compare(const MeasuredRow& row, const Estimate& estimate, ValidatedRow& out);

/// rows and validated are parallel. A row with a measured figure and no forecast counts as an error
/// of 100 %; bias and rank correlation are over forecasts only.
nlohmann::ordered_json validation_summary(const std::vector<MeasuredRow>& rows,
                                          const std::vector<ValidatedRow>& validated,
                                          const nlohmann::ordered_json& groups);

/// Every pair of an A/B group in file order: b over a, measured and forecast. Only effects above 3
/// % have a sign to get right; a pair without a forecast gets it wrong.
nlohmann::ordered_json ab_groups(const std::vector<MeasuredRow>& rows,
                                 const std::vector<ValidatedRow>& validated);

/// Errors of one quantity over a set of rows.
struct Errors {
  std::vector<double> absolute;  ///< percent; 100 where there is no forecast
  std::vector<double> signed_;   ///< forecasts only
  void add(const std::optional<double>& measured, const std::optional<double>& error);
  /// n, mape_pct, median_ape_pct, p90_ape_pct, bias_pct.
  [[nodiscard]] nlohmann::ordered_json summary() const;
};
/// {n, right} of the pairs whose measured effect has a sign.
nlohmann::ordered_json ab_score(const nlohmann::ordered_json& groups);

/// Spearman's rank correlation; ties share their mean rank. Null under two points or when all are
/// equal.
std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b);
/// The smallest value that at least `percent` of the values do not exceed (nearest rank).
std::optional<double> nearest_rank(std::vector<double> values, double percent);

}  // namespace moecast
