#include "estimate/interval.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "layout/enum_names.hpp"
#include "topology/parameter_names.hpp"

namespace moecast {
namespace {

constexpr double kStep = 0.05;     ///< of a finite difference, in log
constexpr double kNormal = 1.645;  ///< 90 % of a normal distribution

/// What the model misses where no fit says it: nine in ten left-out rows within 18 %.
constexpr double kResidualUnfitted = 0.18 / kNormal;

double exact_step(const Problem& p, const Layout& l) {
  Evaluator evaluator(p);
  return evaluator.evaluate(l, Depth::exact).step;
}

double slope(Problem& p, const Layout& l, const Parameter& parameter, double step) {
  double& value = parameter.in(p.profile.calibration);
  const double kept = value;
  value *= std::exp(kStep);
  const double moved = exact_step(p, l);
  value = kept;
  return moved > 0 && step > 0 ? std::log(moved / step) / kStep : 0;
}

bool system_was_fitted(const Problem& p) {
  const auto systems = p.stack.fit.domain.find("system");
  if (systems == p.stack.fit.domain.end()) return false;
  return std::find(systems->second.begin(), systems->second.end(), p.system().name) !=
         systems->second.end();
}

/// Variance of the parameters that no factor of the fit moves, taken as independent.
double other_variance(Problem& p, const Layout& l, double step) {
  double variance = 0;
  for (const Parameter& parameter : parameter_table()) {
    const bool moved = std::any_of(
        p.stack.fit.factors.begin(), p.stack.fit.factors.end(), [&](const StepFit::Factor& f) {
          return f.path == parameter.path &&
                 factor_moves(p.stack, p.system(), p.profile, f.scope, f.path);
        });
    const auto found = p.profile.values.find(parameter.path);
    const double sd = found == p.profile.values.end() ? 0.2 : found->second.sd;
    if (moved || sd == 0 || parameter.in(p.profile.calibration) == 0 ||
        !can_matter(p, l, parameter.path))
      continue;
    variance += std::pow(sd * slope(p, l, parameter, step), 2);
  }
  return variance;
}

double quadratic(const StepFit& fit, const std::vector<double>& g) {
  double sum = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (g[i] == 0) continue;
    for (std::size_t j = 0; j <= i; ++j) {
      const double term =
          g[i] * g[j] * fit.correlation[i][j] * fit.factors[i].sd * fit.factors[j].sd;
      sum += i == j ? term : 2 * term;
    }
  }
  return std::max(0.0, sum);
}

}  // namespace

bool can_matter(const Problem& p, const Layout& l, const std::string& path) {
  const std::string section = path.substr(0, path.find('.'));
  if (section == "gemm" || section == "grouped_gemm" || section == "quantize") {
    const auto own = static_cast<std::size_t>(pipe_of(l.precision));
    for (std::size_t i = 1; i < std::size(kPipeNames); ++i) {  // BF16 parts are in every run
      if (path.find(std::string(".") + kPipeNames[i] + ".") != std::string::npos) return i == own;
    }
  }
  if (section == "grouped_gemm" || section == "dispatch" || section == "permute")
    return p.model.moe.num_moe_experts > 0;
  return true;
}

Sensitivity sensitivity(const Problem& p, const Layout& l, double step) {
  Problem moved = p;
  Sensitivity s;
  const auto& table = parameter_table();
  std::map<std::string, double> slopes;  // a path may have factors of several scopes
  const auto slope_of = [&](const std::string& path) {
    const auto [known, first] = slopes.try_emplace(path, 0);
    if (first) {
      const auto parameter = std::find_if(table.begin(), table.end(),
                                          [&](const Parameter& q) { return q.path == path; });
      known->second = slope(moved, l, *parameter, step);
    }
    return known->second;
  };
  for (const StepFit::Factor& f : p.stack.fit.factors) {
    const bool active =
        factor_moves(p.stack, p.system(), p.profile, f.scope, f.path) && can_matter(p, l, f.path);
    s.fitted.push_back(active ? slope_of(f.path) : 0);
  }
  if (!system_was_fitted(p)) s.others = other_variance(moved, l, step);
  return s;
}

double parameter_sd(const Problem& p, const Sensitivity& s) {
  return std::sqrt(quadratic(p.stack.fit, s.fitted) + s.others);
}

double half_width(const Problem& p, const Sensitivity& s) {
  const StepFit& fit = p.stack.fit;
  if (fit.rows == 0) return kNormal * std::hypot(parameter_sd(p, s), kResidualUnfitted);
  return fit.half_width * std::hypot(parameter_sd(p, s), fit.residual_sd);
}

double ratio_half_width(const Problem& p, const Sensitivity& a, const Sensitivity& b) {
  std::vector<double> difference(a.fitted.size());
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] = a.fitted[i] - b.fitted[i];
  const double own = p.stack.fit.rows > 0 ? p.stack.fit.pair_sd : kResidualUnfitted;
  return kNormal * std::sqrt(quadratic(p.stack.fit, difference) + own * own);
}

std::map<std::string, std::vector<std::string>> domain_of(const Problem& p, const Layout& l) {
  static constexpr const char* kMixers[] = {"none", "gqa", "mla", "csa", "gdn", "kda", "mamba"};
  const std::string& system = p.system().name;
  std::map<std::string, std::vector<std::string>> names;
  names["system"] = {system};
  names["precision"] = {fmt::format("{} {}", system, enum_text(l.precision))};
  if (p.model.moe.num_moe_experts > 0)
    names["dispatcher"] = {fmt::format("{} {}", system, enum_text(l.dispatcher))};
  for (const Mixer& m : p.model.mixers) {
    if (m.kind != MixerKind::none) names["mixer"].push_back(kMixers[static_cast<int>(m.kind)]);
  }
  return names;
}

std::vector<std::string> out_of_domain(const Problem& p, const Layout& l) {
  std::vector<std::string> missing;
  if (p.stack.fit.rows == 0) return missing;
  for (const auto& [knob, names] : domain_of(p, l)) {
    const auto covered = p.stack.fit.domain.find(knob);
    for (const std::string& name : names) {
      const bool known =
          covered != p.stack.fit.domain.end() &&
          std::find(covered->second.begin(), covered->second.end(), name) != covered->second.end();
      if (!known) missing.push_back(fmt::format("{} {}", knob, name));
    }
  }
  return missing;
}

}  // namespace moecast
