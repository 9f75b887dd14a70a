#pragma once
#include <string>

#include "moecast/cluster.hpp"

namespace moecast {

/// What is wrong with the GPU counts of a system, or "".
std::string node_shape_problem(const System& system);

}  // namespace moecast
