#pragma once
/// Bounded robust least squares: Huber on residuals, weak priors, Levenberg-Marquardt with an
/// active set. Knows nothing of kernels.
#include <functional>
#include <vector>

namespace moecast {

/// A parameter as the solver sees it. Those that cannot be 0 move on a log scale, the others on a
/// linear one.
struct FitVariable {
  double start = 0, low = 0, high = 1;
  double prior_sd = 1;  ///< relative to `start`; says where a variable stays that no residual moves
};

struct FitSolution {
  std::vector<double> values;
  std::vector<double> sds;  ///< relative, from the covariance
  double scale = 0;         ///< robust standard deviation of the residuals
};

/// Fills `residuals` (log predicted / measured) at `values`.
using Residuals =
    std::function<void(const std::vector<double>& values, std::vector<double>& residuals)>;

FitSolution fit_robust(const std::vector<FitVariable>& variables, std::size_t points,
                       const Residuals& residuals);

/// Median of |x|, 90th percentile and so on; 0 of nothing.
double quantile(std::vector<double> values, double q);

}  // namespace moecast
