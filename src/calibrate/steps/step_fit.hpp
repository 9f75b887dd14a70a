#pragma once
/// MAP fit of parameters to measured steps: Huber on log time, Gaussian priors on log factors,
/// groups of (model, system) weighted 1 / sqrt(rows) because identical layouts repeat; and what it
/// is worth on rows that it did not see. Ref: docs/accuracy.md.
#include <functional>
#include <string>
#include <vector>

#include <Eigen/Dense>

#include "calibrate/steps/step_model.hpp"
#include "moecast/stack.hpp"

namespace moecast {

struct StepSolution {
  Eigen::VectorXd x;           ///< log factors
  Eigen::VectorXd residuals;   ///< log(forecast / measured) of every row, also of those left out
  Eigen::MatrixXd jacobian;    ///< at x
  Eigen::MatrixXd covariance;  ///< of x, posterior
};

/// Fits from the priors and drops the parameters that the rows say nothing about.
StepSolution fit_steps(StepModel& model);

/// A row's forecast by a fit that did not see its group.
struct LeftOut {
  double log_error = 0;     ///< log(forecast / measured) of the step time
  double parameter_sd = 0;  ///< of it, from that fit's covariance
};
/// Leaves out each value of `key` in turn; warm-started from `full`.
std::vector<LeftOut> leave_out(const StepModel& model, const StepSolution& full,
                               const std::function<std::string(std::size_t)>& key);

/// The scatter that left-out rows show beyond the parameters, and the factors for a stack file.
StepFit summarise(const StepModel& model, const StepSolution& full,
                  const std::vector<LeftOut>& left_out);

/// Standard deviations of a left-out row's forecast under `fit`.
double interval_sd(const StepFit& fit, double parameter_sd);

/// A stack file that lays the fit over the stack `base`.
std::string stack_text(const StepFit& fit, const std::string& name, const std::string& base,
                       const std::string& source);

}  // namespace moecast
