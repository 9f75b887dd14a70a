#pragma once
/// Samples of a node -> parameters of a profile, curve by curve, each judged on samples that its
/// fit has not seen.
#include <string>
#include <vector>

#include "calibrate/fit/curves.hpp"
#include "moecast/calibration.hpp"

namespace moecast {

struct FittedValue {
  std::string path;
  double value = 0, sd = 0;  ///< sd relative
};
/// Errors in per cent of the measured time.
struct ErrorSummary {
  int n = 0;
  double median = 0, p90 = 0, bias = 0;
};
struct CurveFit {
  std::string name;
  int points = 0;
  std::vector<FittedValue> values;  ///< fitted to every point; empty for a refused curve
  ErrorSummary held_out;            ///< of the half that the fit has not seen
  ErrorSummary prior;               ///< of the profile it started from, on the same points
  double noise_pct = 0;             ///< median spread of repeats
  std::string refused;              ///< why the prior is kept; empty = accepted
};
struct ProfileFit {
  Profile profile;  ///< the prior with the accepted values
  std::vector<CurveFit> curves;
  std::vector<std::string> ignored;  ///< classes without a curve, with their number of samples
};

ProfileFit fit_profile(const Samples& samples, const System& system, const Profile& prior);

/// Repeatability that no fit is refused below: independent collections of the same kernels on the
/// same GPU differ by 1 to 7 % in the median (aiconfigurator's GEMM tables), whatever the spread
/// within one session.
inline constexpr double kNoiseFloorPct = 4.0;

}  // namespace moecast
