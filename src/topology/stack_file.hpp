#pragma once
/// One stack file (moecast/stack@1), before the stack it builds on is known.
#include <optional>
#include <string>
#include <vector>

#include "core/document.hpp"
#include "moecast/stack.hpp"

namespace moecast {

struct StackFile {
  Document document;
  std::string name, base;
  Mark base_mark;
  std::vector<std::string> point_releases;  ///< same stack: exact
  std::vector<std::string> aliases;         ///< a guess by date
  Software software;
  std::optional<bool> transformer_engine;
  std::optional<double> fragmentation, fragmentation_default_allocator, context_gib,
      first_communicator_gib, communicator_gib, host_factor, memory_kernel_factor;
  std::map<std::string, std::string> sources;
  std::map<std::string, ParameterValue> parameters;
  std::vector<Deviation> deviations;
  std::optional<StepFit> fit;

  /// What this file says laid over `under`.
  [[nodiscard]] Stack applied_to(Stack under) const;
};

Result<StackFile> read_stack_file(const std::string& path);

}  // namespace moecast
