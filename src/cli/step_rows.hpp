#pragma once
/// Measured rows as the fit of step times takes them.
#include "calibrate/steps/step_fit.hpp"
#include "moecast/validation.hpp"

namespace moecast::cli {

/// The fit of the rows, and what it is worth on rows that it does not see.
struct StepStudy {
  CrossValidation cross;  ///< by_group, by_release: empty unless `leave_out`
  StepFit fit;
};
StepStudy study_steps(const std::vector<MeasuredRow>& rows, const ValidateOptions& options);

}  // namespace moecast::cli
