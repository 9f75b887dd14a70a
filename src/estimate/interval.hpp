#pragma once
/// The error band of a forecast: every calibration parameter's uncertainty through the model, plus
/// what the model itself misses.
#include "estimate/evaluate.hpp"

namespace moecast {

/// Relative standard deviation of the step time from parameter uncertainties (finite differences of
/// evaluate, parameters independent).
double parameter_spread(const Problem& p, const Layout& l, double step);

/// Log-residual that remains on measured rows of groups that were left out of a fit: robust
/// standard deviation. Source: feasibility study of the time model (robust sd 7.4 % over 263
/// published rows).
inline constexpr double kModelResidual = 0.074;

}  // namespace moecast
