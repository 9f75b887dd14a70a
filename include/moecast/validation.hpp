#pragma once
/// Measured rows against forecasts (docs/formats.md).
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "moecast/estimate.hpp"
#include "moecast/result.hpp"

namespace moecast {

/// One CSV line: every column by name, plus what it means as a run.
struct MeasuredRow {
  std::map<std::string, std::string> columns;
  std::string id;
  std::optional<Run> run;  ///< absent when the row cannot be expressed; then `unsupported` says why
  std::string unsupported;
  std::vector<std::string> notes;  ///< assumptions made for empty cells, unknown words
  std::optional<double> tflops_per_gpu, step_time_s, peak_mem_gib;
  std::string mem_basis;
  /// More about memory, from columns at_rest_gib, reserved_gib, params_rank or the same in words in
  /// notes.
  std::optional<double> at_rest_gib, reserved_gib, params_rank;
  bool peak_of_first_step = false;  ///< the peak was read after step 1
  bool imbalance_assumed = false;   ///< natural routing, of which the row says no more
};
/// Reads a CSV with the columns of measurements.csv; `where` filters are column=value or
/// column!=value.
Result<std::vector<MeasuredRow>> read_measured_rows(const std::string& path,
                                                    const std::vector<std::string>& where);

struct ValidateOptions {
  std::string system_override;  ///< --system PROFILE
  std::string stack_override;   ///< --stack FILE
  int threads = 0;
};
struct ValidatedRow {
  std::string id, status, detail;  ///< ok | illegal | does_not_fit | unsupported
  std::optional<double> predicted_tflops_per_gpu, measured_tflops_per_gpu, error_pct;
  std::optional<double> predicted_peak_gib, measured_peak_gib, memory_error_pct;
  struct Figure {
    double predicted = 0, measured = 0;
  };
  std::optional<Figure> at_rest_gib{}, reserved_gib{}, params_rank{};
  std::vector<double> stage_peaks_gib{};    ///< when it is not known which stage the peak is of
  std::map<std::string, double> kernels{};  ///< seconds of a step by kernel class, of the forecast
};
/// A row's forecast by a fit that did not see its group.
struct LeftOutRow {
  double log_error = 0;  ///< log(forecast / measured) of the step time
  double spread = 0;     ///< half of its 90 % interval, in log
};
/// What forecasts are worth on rows that the fit did not see.
struct CrossValidation {
  int fitted_parameters = 0;
  std::vector<std::optional<LeftOutRow>> by_group;    ///< parallel to the rows; (model, system)
  std::vector<std::optional<LeftOutRow>> by_release;  ///< the same, leaving out releases
  std::vector<std::optional<LeftOutRow>> in_sample;
};
struct Validation {
  std::vector<ValidatedRow> rows;
  nlohmann::ordered_json summary;           ///< as docs/formats.md: n, mape_pct, ..., memory, by
  nlohmann::ordered_json groups;            ///< A/B pairs
  nlohmann::ordered_json cross_validation;  ///< null unless asked for
  nlohmann::ordered_json kernel_classes;    ///< null unless asked for
};
/// Kernel-class milliseconds of profiled steps (columns id, rank, k_gemm_ms, ...: docs/formats.md)
/// against the forecasts of the rows with the same id: errors by class.
Result<nlohmann::ordered_json> compare_kernel_classes(const std::string& path,
                                                      const std::vector<ValidatedRow>& validated);
/// The errors of left-out forecasts as a document (docs/formats.md).
nlohmann::ordered_json cross_validation_summary(const std::vector<MeasuredRow>& rows,
                                                const CrossValidation& cross);
Validation validate_rows(const std::vector<MeasuredRow>& rows, const ValidateOptions& options);

}  // namespace moecast
