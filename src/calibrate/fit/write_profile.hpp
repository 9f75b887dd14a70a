#pragma once
/// A fit as files: the profile (YAML), the report (JSON), and the comparison with another profile.
#include <nlohmann/json.hpp>

#include "calibrate/fit/fit_profile.hpp"

namespace moecast {

/// `extends` names the prior; only what was measured is written.
std::string profile_yaml(const ProfileFit& fit, const Samples& samples, const std::string& extends,
                         const std::string& system);
/// Curves with residuals, values and refusals.
nlohmann::ordered_json fit_json(const ProfileFit& fit, const Samples& samples);

/// One kernel class of these samples against a profile and against the physical limit.
struct ClassComparison {
  std::string name;  ///< class, precision and pass where they differ
  int kernels = 0;
  double fraction_here = 0, best_here = 0;  ///< of the limit: median and best kernel
  double fraction_there = 0;                ///< what the profile says of the same kernels, median
  double time_ratio = 0;                    ///< median measured / profile
};
std::vector<ClassComparison> compare_with(const Samples& samples, const System& system,
                                          const Profile& profile);

}  // namespace moecast
