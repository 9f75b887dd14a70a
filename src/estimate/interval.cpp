#include "estimate/interval.hpp"

#include <cmath>

namespace moecast {

double parameter_spread(const Problem& p, const Layout& l, double step) {
  double variance = 0;
  Problem moved = p;
  for (const Parameter& parameter : parameter_table()) {
    const double value = parameter.in(p.profile.calibration);
    const auto found = p.profile.values.find(parameter.path);
    const double sd = found == p.profile.values.end() ? 0.2 : found->second.sd;
    if (value == 0 || sd == 0) continue;
    parameter.in(moved.profile.calibration) = value * (1 + sd);
    Evaluator evaluator(moved);
    const double shifted = evaluator.evaluate(l, Depth::exact).step;
    parameter.in(moved.profile.calibration) = value;
    if (shifted > 0 && step > 0) variance += std::pow(std::log(shifted / step), 2);
  }
  return std::sqrt(variance);
}

}  // namespace moecast
