#include "calibrate/steps/step_model.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "estimate/evaluate.hpp"
#include "estimate/interval.hpp"

namespace moecast {
namespace {

constexpr double kStep = 0.05;  ///< of a finite difference, in log

void in_parallel(std::size_t items, int threads, const std::function<void(std::size_t)>& f) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < items; i = next++) f(i);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (auto& t : others) t.join();
}

/// GEMM efficiencies (clocks and power differ) belong to a system, what the host does to its kind,
/// everything else to a GPU generation.
std::string scope_of(const std::string& path, const System& system) {
  if (path.starts_with("gemm.") && path.ends_with(".efficiency")) return system.name;
  if (path.starts_with("launch.")) return system.grace ? "grace" : "x86";
  return in_scope(system, "hopper") ? "hopper" : "blackwell";
}

double log_time(const Problem& p, const Layout& l) {
  Evaluator evaluator(p);
  return std::log(evaluator.evaluate(l, Depth::exact).step);
}

}  // namespace

StepModel::StepModel(std::vector<StepRow> rows, int threads)
    : rows_(std::move(rows)),
      threads_(threads > 0 ? threads
                           : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {
  collect_parameters();
}

std::string StepModel::group(std::size_t row) const {
  return rows_[row].model + " / " + rows_[row].system;
}

void StepModel::collect_parameters() {
  const auto& table = parameter_table();
  for (std::size_t q = 0; q < table.size(); ++q) {
    std::map<std::string, const Problem*> scopes;
    for (const StepRow& r : rows_) {
      if (!can_matter(r.problem, r.layout, table[q].path)) continue;
      scopes.emplace(scope_of(table[q].path, r.problem.system()), &r.problem);
    }
    for (const auto& [scope, problem] : scopes) {
      const auto found = problem->profile.values.find(table[q].path);
      if (factor_moves(problem->stack, problem->system(), problem->profile, scope, table[q].path) &&
          found->second.sd > 0)
        add_parameter(scope, q, found->second.sd, *problem);
    }
  }
  collect_deviations();
}

void StepModel::collect_deviations() {
  const auto& table = parameter_table();
  std::set<std::pair<std::string, std::string>> seen;
  for (const StepRow& r : rows_) {
    for (const Deviation& d : r.problem.stack.deviations) {
      if (!seen.emplace(d.scope, d.path).second) continue;
      const auto at = std::find_if(table.begin(), table.end(),
                                   [&](const Parameter& p) { return p.path == d.path; });
      add_parameter(d.scope, static_cast<std::size_t>(at - table.begin()), d.sd, r.problem);
    }
  }
}

void StepModel::add_parameter(const std::string& scope, std::size_t index, double sd,
                              const Problem& problem) {
  const Parameter& parameter = parameter_table()[index];
  const double value = parameter.in(problem.profile.calibration);
  if (value <= 0) return;
  parameters_.push_back({scope, static_cast<int>(index), sd,
                         std::max(-3 * sd, std::log(std::max(parameter.low, 1e-9) / value)),
                         std::min(3 * sd, std::log(parameter.high / value))});
}

void StepModel::keep(const std::vector<std::size_t>& positions) {
  std::vector<StepParameter> kept;
  for (const std::size_t i : positions) kept.push_back(parameters_[i]);
  parameters_ = std::move(kept);
}

bool StepModel::moves(const StepParameter& t, std::size_t row) const {
  const StepRow& r = rows_[row];
  const std::string& path = parameter_table()[static_cast<std::size_t>(t.index)].path;
  return factor_moves(r.problem.stack, r.problem.system(), r.problem.profile, t.scope, path) &&
         can_matter(r.problem, r.layout, path);
}

Problem StepModel::at(std::size_t row, const Eigen::VectorXd& x) const {
  Problem p = rows_[row].problem;
  for (std::size_t j = 0; j < parameters_.size(); ++j) {
    const StepParameter& t = parameters_[j];
    const Parameter& parameter = parameter_table()[static_cast<std::size_t>(t.index)];
    if (factor_moves(p.stack, p.system(), p.profile, t.scope, parameter.path))
      parameter.in(p.profile.calibration) *= std::exp(x[static_cast<Eigen::Index>(j)]);
  }
  return p;
}

Eigen::VectorXd StepModel::residuals(const Eigen::VectorXd& x) const {
  Eigen::VectorXd out(static_cast<Eigen::Index>(rows_.size()));
  in_parallel(rows_.size(), threads_, [&](std::size_t i) {
    out[static_cast<Eigen::Index>(i)] =
        log_time(at(i, x), rows_[i].layout) - std::log(rows_[i].seconds);
  });
  return out;
}

Eigen::MatrixXd StepModel::jacobian(const Eigen::VectorXd& x) const {
  Eigen::MatrixXd J = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(rows_.size()),
                                            static_cast<Eigen::Index>(parameters_.size()));
  in_parallel(rows_.size(), threads_, [&](std::size_t i) {
    Problem p = at(i, x);
    const double base = log_time(p, rows_[i].layout);
    for (std::size_t j = 0; j < parameters_.size(); ++j) {
      if (!moves(parameters_[j], i)) continue;
      double& value = parameter_table()[static_cast<std::size_t>(parameters_[j].index)].in(
          p.profile.calibration);
      const double kept = value;
      value *= std::exp(kStep);
      J(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
          (log_time(p, rows_[i].layout) - base) / kStep;
      value = kept;
    }
  });
  return J;
}

}  // namespace moecast
