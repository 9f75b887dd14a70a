#pragma once
/// Which profile belongs to what a user names as a system.
#include <string>

#include "moecast/calibration.hpp"
#include "moecast/cluster.hpp"

namespace moecast {

/// Path of hwdb/profiles/NAME.yaml; empty when no such profile ships.
std::string shipped_profile(const std::string& name);

/// `place` was read as `system`: a calibrated profile is itself; else the shipped profile of the
/// system's name; else that of its GPU generation.
Result<Profile> profile_for(const std::string& place, const System& system);

}  // namespace moecast
