#pragma once
/// What the launchers change in a configuration before they check it, in their order.
#include <string>
#include <string_view>
#include <vector>

#include "layout/rules.hpp"

namespace moecast {

struct Mutation {
  std::string_view id, reads, writes, what, source;
  Enforcer enforcer = Enforcer::core;
  /// Allocates nothing.
  void (*apply)(MegatronConfig& config, const Surroundings& at) = nullptr;
};
const std::vector<Mutation>& mutation_table();

/// Applies all that the launcher applies.
void mutate(MegatronConfig& config, const Surroundings& at);

/// The same, and what each changed: one finding per mutation that had an effect, with before and
/// after.
std::vector<Finding> mutations_of(MegatronConfig config, const Surroundings& at);

}  // namespace moecast
