#pragma once
/// The error band of a forecast: every calibration parameter's uncertainty through the model, plus
/// what the model itself misses.
#include "estimate/evaluate.hpp"

namespace moecast {

/// Relative standard deviation of the step time from parameter uncertainties (finite differences of
/// evaluate, parameters independent).
double parameter_spread(const Problem& p, const Layout& l, double step);

/// What remains on measured rows of (model, system) groups that were left out of the fit: nine in
/// ten within 18.5 %, as a standard deviation of log time. Source: bench/fit_steps on 167 published
/// rows, linearised leave-one-group-out.
inline constexpr double kModelResidual = 0.185 / 1.645;

}  // namespace moecast
