#pragma once
#include <set>
#include <string>
#include <vector>

#include "layout/megatron_knobs.hpp"

namespace moecast::test {

struct OptionCase {
  std::string id, breaks, passes;  ///< JSON objects of Megatron's options
  bool for_bridge = false;         ///< where the rule is everyone's but the base differs
};
const std::vector<OptionCase>& option_cases();
/// Rules that a legal base with these options breaks.
std::set<std::string> broken_by_options(const std::string& options, Flavour flavour);

}  // namespace moecast::test
