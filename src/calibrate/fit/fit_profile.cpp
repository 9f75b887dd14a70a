#include "calibrate/fit/fit_profile.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "calibrate/fit/least_squares.hpp"

namespace moecast {
namespace {

using Points = std::vector<const FitPoint*>;

/// A prior holds a parameter only where no sample moves it.
constexpr double kPriorWidening = 5;
constexpr double kMinimumSd = 0.01;

const Parameter& parameter(const std::string& path) {
  const auto& table = parameter_table();
  return *std::find_if(table.begin(), table.end(), [&](const auto& p) { return p.path == path; });
}

std::vector<FitVariable> variables_of(const FitCurve& curve, const Profile& prior) {
  std::vector<FitVariable> variables;
  for (const std::string& path : curve.parameters) {
    const Parameter& p = parameter(path);
    const double sd = prior.values.at(path).sd;
    variables.push_back({p.in(prior.calibration), p.low, p.high, kPriorWidening * sd});
  }
  return variables;
}

void set(Calibration& c, const FitCurve& curve, const std::vector<double>& values) {
  for (std::size_t j = 0; j < values.size(); ++j) parameter(curve.parameters[j]).in(c) = values[j];
}

std::vector<double> log_errors(const Points& points, const Calibration& c, const System& system) {
  std::vector<double> errors;
  for (const FitPoint* p : points)
    errors.push_back(std::log(in_us(p->call.time(c, system)) / p->measured_us));
  return errors;
}

ErrorSummary summary(const std::vector<double>& logs) {
  ErrorSummary s;
  std::vector<double> absolute, relative;
  for (const double r : logs) {
    relative.push_back(100 * (std::exp(r) - 1));
    absolute.push_back(std::abs(relative.back()));
  }
  s.n = static_cast<int>(logs.size());
  s.median = quantile(absolute, 0.5);
  s.p90 = quantile(absolute, 0.9);
  s.bias = quantile(relative, 0.5);
  return s;
}

FitSolution solve(const FitCurve& curve, const Points& points, const Profile& prior,
                  const System& system) {
  Calibration c = prior.calibration;
  return fit_robust(variables_of(curve, prior), points.size(),
                    [&](const std::vector<double>& values, std::vector<double>& out) {
                      set(c, curve, values);
                      out = log_errors(points, c, system);
                    });
}

/// Every part is forecast by a fit of the others: halves of many kernels, single ones of few.
std::vector<double> held_out_errors(const FitCurve& curve, Points points, const Profile& prior,
                                    const System& system) {
  std::sort(points.begin(), points.end(),
            [](const FitPoint* a, const FitPoint* b) { return a->hash < b->hash; });
  constexpr std::size_t kMany = 60;
  const std::size_t parts = points.size() >= kMany ? 2 : points.size();
  std::vector<double> errors;
  for (std::size_t part = 0; part < parts; ++part) {
    Points seen, unseen;
    for (std::size_t i = 0; i < points.size(); ++i)
      (i % parts == part ? unseen : seen).push_back(points[i]);
    Calibration c = prior.calibration;
    set(c, curve, solve(curve, seen, prior, system).values);
    const std::vector<double> some = log_errors(unseen, c, system);
    errors.insert(errors.end(), some.begin(), some.end());
  }
  return errors;
}

double noise_of(const Points& points) {
  std::vector<double> spread;
  for (const FitPoint* p : points) spread.push_back(p->repeat_pct);
  return quantile(spread, 0.5);
}

std::string refusal(const CurveFit& fit, std::size_t needed) {
  if (fit.points < static_cast<int>(needed)) {
    return fmt::format("{} kernels for {} parameters; at least {} are needed", fit.points,
                       needed / 2, needed);
  }
  const double limit = 2 * std::max(fit.noise_pct, kNoiseFloorPct);
  if (fit.held_out.median > limit) {
    return fmt::format("held-out median {:.1f} % is above {:.1f} %, twice the noise floor",
                       fit.held_out.median, limit);
  }
  return "";
}

CurveFit fit_curve(const FitCurve& curve, const Points& points, Profile& profile,
                   const System& system) {
  CurveFit fit;
  fit.name = curve.name;
  fit.points = static_cast<int>(points.size());
  fit.noise_pct = noise_of(points);
  fit.prior = summary(log_errors(points, profile.calibration, system));
  const std::size_t needed = 2 * curve.parameters.size();
  if (points.size() >= needed)
    fit.held_out = summary(held_out_errors(curve, points, profile, system));
  fit.refused = refusal(fit, needed);
  if (!fit.refused.empty()) return fit;
  const FitSolution solution = solve(curve, points, profile, system);
  set(profile.calibration, curve, solution.values);
  for (std::size_t j = 0; j < curve.parameters.size(); ++j) {
    fit.values.push_back(
        {curve.parameters[j], solution.values[j], std::max(solution.sds[j], kMinimumSd)});
  }
  return fit;
}

CurveFit fit_direct(const DirectCurve& curve, const Samples& samples, Profile& profile) {
  CurveFit fit;
  fit.name = curve.name;
  std::vector<double> values, deviations;
  int timings = 0;
  double spread_pct = 0;  // of one sample's timings, 10th to 90th percentile
  for (const Sample& s : samples.samples) {
    const auto value = curve.value_of(s, samples.device);
    if (!value) continue;
    values.push_back(*value);
    timings += s.n;
    spread_pct = std::max(spread_pct, s.spread_pct);
  }
  fit.points = static_cast<int>(values.size());
  constexpr int kFewest = 3;
  if (timings < kFewest && fit.points < kFewest) {
    fit.refused = fmt::format("{} timings; at least {} are needed", timings, kFewest);
    return fit;
  }
  const Parameter& p = parameter(curve.parameter);
  const double median = std::clamp(quantile(values, 0.5), p.low, p.high);
  for (const double v : values) deviations.push_back(std::abs(v - median));
  const double between = 1.4826 * quantile(deviations, 0.5) / std::max(std::abs(median), 1e-9);
  const double sd = std::max(between, spread_pct / 100 / 2.56);  // 2.56 sd from 10 to 90 %
  p.in(profile.calibration) = median;
  fit.noise_pct = 100 * sd;
  fit.values.push_back({curve.parameter, median, std::clamp(sd, kMinimumSd, 1.0)});
  return fit;
}

std::vector<std::string> ignored_classes(const Samples& samples) {
  std::map<std::string, int> counts;
  for (const Sample& s : samples.samples) {
    const auto takes = [&](const auto& curve) { return curve.takes(s); };
    const auto gives = [&](const auto& curve) {
      return curve.value_of(s, samples.device).has_value();
    };
    if (std::none_of(fit_curves().begin(), fit_curves().end(), takes) &&
        std::none_of(direct_curves().begin(), direct_curves().end(), gives))
      ++counts[s.cls];
  }
  std::vector<std::string> list;
  for (const auto& [cls, n] : counts) list.push_back(fmt::format("{} ({})", cls, n));
  return list;
}

void record(const CurveFit& fit, const std::string& source, Profile& profile) {
  for (const FittedValue& v : fit.values)
    profile.values[v.path] = {v.value, v.sd, source, "measured"};
}

}  // namespace

ProfileFit fit_profile(const Samples& samples, const System& system, const Profile& prior) {
  ProfileFit out{prior, {}, ignored_classes(samples)};
  const std::vector<FitPoint> points = fit_points(samples, system);
  const std::string source =
      fmt::format("moecast calibrate on {}, {}", samples.device.name, samples.device.date);
  for (const FitCurve& curve : fit_curves()) {
    Points own;
    for (const FitPoint& p : points)
      if (curve.takes(*p.sample)) own.push_back(&p);
    if (own.empty()) continue;
    out.curves.push_back(fit_curve(curve, own, out.profile, system));
    record(out.curves.back(), source, out.profile);
  }
  for (const DirectCurve& curve : direct_curves()) {
    CurveFit fit = fit_direct(curve, samples, out.profile);
    if (fit.points == 0) continue;
    record(fit, source, out.profile);
    out.curves.push_back(std::move(fit));
  }
  return out;
}

}  // namespace moecast
