#pragma once
/// Measured training steps as residuals of the parameters: which parameters they can move, how far
/// each forecast is off, and how it moves with every parameter.
#include <string>
#include <vector>

#include <Eigen/Dense>

#include "estimate/problem.hpp"
#include "moecast/layout.hpp"

namespace moecast {

/// One measured step and the run that it belongs to.
struct StepRow {
  std::string id, model, system, release;
  Problem problem;  ///< with the parameters' priors (make_problem(run, false))
  Layout layout;
  double seconds = 0;  ///< measured
};

/// A log factor on one parameter of the systems, or of the stacks, in `scope`.
struct StepParameter {
  std::string scope;
  int index = 0;  ///< into parameter_table()
  double prior_sd = 0.2, low = -1, high = 1;
};

class StepModel {
 public:
  StepModel(std::vector<StepRow> rows, int threads);

  [[nodiscard]] const std::vector<StepRow>& rows() const { return rows_; }
  [[nodiscard]] const std::vector<StepParameter>& parameters() const { return parameters_; }
  [[nodiscard]] std::string group(std::size_t row) const;  ///< "model / system"
  /// Keeps only the parameters at these positions.
  void keep(const std::vector<std::size_t>& positions);

  /// log(forecast / measured) of every row with factors exp(x).
  [[nodiscard]] Eigen::VectorXd residuals(const Eigen::VectorXd& x) const;
  /// Derivatives of residuals(x) by finite differences.
  [[nodiscard]] Eigen::MatrixXd jacobian(const Eigen::VectorXd& x) const;

 private:
  void collect_parameters();
  void collect_deviations();
  void add_parameter(const std::string& scope, std::size_t index, double sd,
                     const Problem& problem);
  [[nodiscard]] bool moves(const StepParameter& t, std::size_t row) const;
  [[nodiscard]] Problem at(std::size_t row, const Eigen::VectorXd& x) const;

  std::vector<StepRow> rows_;
  std::vector<StepParameter> parameters_;
  int threads_;
};

}  // namespace moecast
