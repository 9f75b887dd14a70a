#include "calibrate/steps/step_fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "calibrate/fit/least_squares.hpp"
#include "estimate/interval.hpp"

namespace moecast {
namespace {

constexpr double kSigma = 0.04;  ///< scatter of repeated runs and of what no mechanism explains
constexpr double kHuber = 1.5;
constexpr int kIterations = 6;
constexpr int kRefits = 3;  ///< rounds of a left-out fit with the full fit's derivatives

/// A parameter is kept when the rows narrow it or move it.
constexpr double kNarrowed = 0.97, kMoved = 0.1;

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

VectorXd group_weights(const StepModel& model) {
  std::map<std::string, int> sizes;
  for (std::size_t i = 0; i < model.rows().size(); ++i) ++sizes[model.group(i)];
  VectorXd w(static_cast<Index>(model.rows().size()));
  for (std::size_t i = 0; i < model.rows().size(); ++i)
    w[static_cast<Index>(i)] = 1 / std::sqrt(static_cast<double>(sizes[model.group(i)]));
  return w;
}

double huber(double z) {
  const double a = std::abs(z);
  return a <= kHuber ? 0.5 * a * a : kHuber * (a - 0.5 * kHuber);
}

double cost(const StepModel& model, const VectorXd& weights, const VectorXd& x, const VectorXd& r) {
  double c = 0;
  for (Index i = 0; i < r.size(); ++i) c += weights[i] * huber(r[i] / kSigma);
  for (Index j = 0; j < x.size(); ++j)
    c += 0.5 * std::pow(x[j] / model.parameters()[static_cast<std::size_t>(j)].prior_sd, 2);
  return c;
}

/// Normal equations of the reweighted problem around x.
struct Normal {
  MatrixXd H;
  VectorXd g;
};
Normal normal_equations(const StepModel& model, const VectorXd& weights, const MatrixXd& J,
                        const VectorXd& x, const VectorXd& r) {
  VectorXd w = weights / (kSigma * kSigma);
  for (Index i = 0; i < r.size(); ++i) {
    const double z = std::abs(r[i] / kSigma);
    if (z > kHuber) w[i] *= kHuber / z;
  }
  Normal n{J.transpose() * w.asDiagonal() * J, J.transpose() * w.cwiseProduct(r)};
  for (Index j = 0; j < x.size(); ++j) {
    const double p = std::pow(model.parameters()[static_cast<std::size_t>(j)].prior_sd, -2);
    n.H(j, j) += p;
    n.g[j] += p * x[j];
  }
  return n;
}

VectorXd gauss_newton(const StepModel& model, const VectorXd& weights, const MatrixXd& J,
                      const VectorXd& x, const VectorXd& r) {
  const Normal n = normal_equations(model, weights, J, x, r);
  VectorXd next = x - n.H.ldlt().solve(n.g);
  for (Index j = 0; j < x.size(); ++j) {
    const StepParameter& t = model.parameters()[static_cast<std::size_t>(j)];
    next[j] = std::clamp(next[j], t.low, t.high);
  }
  return next;
}

StepSolution descend(const StepModel& model, VectorXd x, int iterations) {
  const VectorXd weights = group_weights(model);
  StepSolution s;
  s.x = std::move(x);
  s.residuals = model.residuals(s.x);
  for (int i = 0; i < iterations; ++i) {
    s.jacobian = model.jacobian(s.x);
    const double before = cost(model, weights, s.x, s.residuals);
    const VectorXd step = gauss_newton(model, weights, s.jacobian, s.x, s.residuals) - s.x;
    bool better = false;
    for (double scale = 1; scale > 0.1 && !better; scale /= 2) {
      const VectorXd trial = s.x + scale * step, r = model.residuals(trial);
      better = cost(model, weights, trial, r) < before;
      if (better) s.x = trial, s.residuals = r;
    }
    if (!better || step.cwiseAbs().maxCoeff() < 1e-3) break;
  }
  s.covariance = normal_equations(model, weights, s.jacobian, s.x, s.residuals)
                     .H.ldlt()
                     .solve(MatrixXd::Identity(s.x.size(), s.x.size()));
  return s;
}

std::vector<std::size_t> informed(const StepModel& model, const StepSolution& s) {
  std::vector<std::size_t> kept;
  for (std::size_t j = 0; j < model.parameters().size(); ++j) {
    const auto i = static_cast<Index>(j);
    const double prior = model.parameters()[j].prior_sd;
    if (std::sqrt(s.covariance(i, i)) < kNarrowed * prior || std::abs(s.x[i]) > kMoved * prior)
      kept.push_back(j);
  }
  return kept;
}

}  // namespace

StepSolution fit_steps(StepModel& model) {
  const auto size = [&] { return static_cast<Index>(model.parameters().size()); };
  const StepSolution wide = descend(model, VectorXd::Zero(size()), kIterations);
  const auto kept = informed(model, wide);
  VectorXd start(static_cast<Index>(kept.size()));
  for (std::size_t k = 0; k < kept.size(); ++k)
    start[static_cast<Index>(k)] = wide.x[static_cast<Index>(kept[k])];
  model.keep(kept);
  return descend(model, start, 2);
}

std::vector<LeftOut> leave_out(const StepModel& model, const StepSolution& full,
                               const std::function<std::string(std::size_t)>& key) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < model.rows().size(); ++i) names.insert(key(i));
  std::vector<LeftOut> out(model.rows().size());
  for (const std::string& name : names) {
    VectorXd weights = group_weights(model);
    for (std::size_t i = 0; i < model.rows().size(); ++i)
      if (key(i) == name) weights[static_cast<Index>(i)] = 0;
    VectorXd x = full.x, r = full.residuals;
    for (int round = 0; round < kRefits; ++round) {
      x = gauss_newton(model, weights, full.jacobian, x, r);
      r = model.residuals(x);
    }
    const MatrixXd covariance = normal_equations(model, weights, full.jacobian, x, r)
                                    .H.ldlt()
                                    .solve(MatrixXd::Identity(x.size(), x.size()));
    for (std::size_t i = 0; i < model.rows().size(); ++i) {
      if (key(i) != name) continue;
      const auto row = full.jacobian.row(static_cast<Index>(i));
      const double variance = row * covariance * row.transpose();
      out[i] = {r[static_cast<Index>(i)], std::sqrt(std::max(0.0, variance))};
    }
  }
  return out;
}

namespace {

/// What is left of the errors' variance beyond the parameters', robustly (median of squares).
double residual_sd(const std::vector<LeftOut>& rows) {
  const auto excess = [&](double s) {
    std::vector<double> z;
    for (const LeftOut& r : rows)
      z.push_back(std::abs(r.log_error) / std::hypot(r.parameter_sd, s));
    return quantile(z, 0.5) - 0.6745;  // of a normal distribution
  };
  double low = 0.005, high = 0.5;
  for (int i = 0; i < 40; ++i) {
    const double middle = 0.5 * (low + high);
    (excess(middle) > 0 ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

/// Two rows of one group against each other: what their errors do not share.
double pair_sd(const StepModel& model, const StepSolution& full) {
  std::map<std::string, std::vector<double>> groups;
  for (std::size_t i = 0; i < model.rows().size(); ++i)
    groups[model.group(i)].push_back(full.residuals[static_cast<Index>(i)]);
  std::vector<double> differences;
  for (const auto& [name, errors] : groups) {
    for (std::size_t a = 0; a < errors.size(); ++a) {
      for (std::size_t b = a + 1; b < errors.size(); ++b)
        differences.push_back(std::abs(errors[a] - errors[b]));
    }
  }
  return differences.empty() ? 0.1 : quantile(differences, 0.9) / 1.645;
}

void note(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

std::map<std::string, std::vector<std::string>> covered(const StepModel& model) {
  std::map<std::string, std::vector<std::string>> domain;
  for (const StepRow& r : model.rows()) {
    for (const auto& [knob, names] : domain_of(r.problem, r.layout))
      for (const std::string& name : names) note(domain[knob], name);
  }
  for (auto& [name, list] : domain) std::sort(list.begin(), list.end());
  return domain;
}

}  // namespace

StepFit summarise(const StepModel& model, const StepSolution& full,
                  const std::vector<LeftOut>& left_out) {
  StepFit fit;
  const std::size_t k = model.parameters().size();
  for (std::size_t j = 0; j < k; ++j) {
    const StepParameter& t = model.parameters()[j];
    const auto i = static_cast<Index>(j);
    fit.factors.push_back({t.scope, parameter_table()[static_cast<std::size_t>(t.index)].path,
                           full.x[i], std::sqrt(full.covariance(i, i))});
    std::vector<double> row;
    for (std::size_t m = 0; m <= j; ++m) {
      const auto n = static_cast<Index>(m);
      row.push_back(full.covariance(i, n) /
                    std::sqrt(full.covariance(i, i) * full.covariance(n, n)));
    }
    fit.correlation.push_back(std::move(row));
  }
  fit.rows = static_cast<int>(model.rows().size());
  fit.residual_sd = residual_sd(left_out);
  fit.pair_sd = pair_sd(model, full);
  std::vector<double> z;
  for (const LeftOut& r : left_out)
    z.push_back(std::abs(r.log_error) / interval_sd(fit, r.parameter_sd));
  fit.half_width = quantile(z, 0.9);
  fit.domain = covered(model);
  return fit;
}

double interval_sd(const StepFit& fit, double parameter_sd) {
  return std::hypot(parameter_sd, fit.residual_sd);
}

}  // namespace moecast
