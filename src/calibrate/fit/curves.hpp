#pragma once
/// Which samples determine which parameters: one row per curve.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/points.hpp"

namespace moecast {

struct FitCurve {
  std::string name;                     ///< gemm.bf16
  std::vector<std::string> parameters;  ///< paths of the parameter table
  std::function<bool(const Sample&)> takes;
};
/// In the order of fitting: a curve may use what an earlier one has fitted.
const std::vector<FitCurve>& fit_curves();

/// A parameter that samples give directly, without a price formula: the median of `value_of`.
struct DirectCurve {
  std::string name, parameter;
  /// The parameter as one sample says it, or nothing.
  std::function<std::optional<double>(const Sample&, const SampleDevice&)> value_of;
};
const std::vector<DirectCurve>& direct_curves();

}  // namespace moecast
