#pragma once
/// How sure a forecast is: what measured steps left open about the parameters (their joint
/// covariance), and what the model itself misses on rows that the fit did not see. Two layouts of
/// one run share the parameters: their ratio is surer than either step.
#include <string>
#include <vector>

#include "estimate/evaluate.hpp"

namespace moecast {

/// False where a layout's precision or the model surely leave the parameter alone.
bool can_matter(const Problem& p, const Layout& l, const std::string& path);

/// d log(step) / d log(parameter), by finite differences of the exact step.
struct Sensitivity {
  std::vector<double> fitted;  ///< by factor of the stack's fit; 0 out of scope
  double others = 0;           ///< variance of the parameters that no measured step moved
};
/// `others` is computed only where the fit saw no step of the system: elsewhere the residual holds
/// it.
Sensitivity sensitivity(const Problem& p, const Layout& l, double step);

/// Standard deviation of log(step) from the parameters.
double parameter_sd(const Problem& p, const Sensitivity& s);
/// Half of the 90 % interval of log(step).
double half_width(const Problem& p, const Sensitivity& s);
/// The same of log(step of a / step of b), both of this problem.
double ratio_half_width(const Problem& p, const Sensitivity& a, const Sensitivity& b);

/// What of the run no measured step covers, by name: system, precision, dispatcher, mixer. Empty
/// when the stack has no fit.
std::vector<std::string> out_of_domain(const Problem& p, const Layout& l);
/// The names that stand for a run in a fit's domain, by knob.
std::map<std::string, std::vector<std::string>> domain_of(const Problem& p, const Layout& l);

}  // namespace moecast
