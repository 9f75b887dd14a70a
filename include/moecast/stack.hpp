#pragma once
/// What a software release makes of the machine: versions, which fusions and features are on,
/// allocator reserve, and tight factors on host and memory kernels. One file per container release
/// in hwdb/stacks (schema moecast/stack@1).
#include <map>
#include <string>
#include <vector>

#include "moecast/result.hpp"
#include "moecast/run.hpp"
#include "moecast/units.hpp"

namespace moecast {

struct Stack {
  std::string name;                  ///< 26.08, megatron-local-2026-08, current
  std::vector<std::string> aliases;  ///< other release names that are read as this one
  Software software;                 ///< versions; features = what is on by default
  bool transformer_engine = true;    ///< false = Megatron's local PyTorch stack
  double fragmentation = 0.06;  ///< reserved / allocated - 1 at the peak: the published allowance
  double fragmentation_default_allocator = 0.06;  ///< the same without expandable segments
  Bytes context;                      ///< outside the allocator: CUDA context and libraries
  Bytes first_communicator;           ///< outside the allocator: NCCL's first communicator
  Bytes communicator;                 ///< and every further one
  double host_factor = 1.0;           ///< host time against the profile's
  double memory_kernel_factor = 1.0;  ///< memory-bound kernels against the profile's
  std::map<std::string, std::string> sources;  ///< per value
};

/// By container name or alias (then `exact` is false), or a path. An unknown name is a Diagnostic
/// with the nearest.
struct StackMatch {
  Stack stack;
  bool exact = true;
};
Result<StackMatch> load_stack(const std::string& name_or_path);
std::vector<std::string> shipped_stacks();

/// Fills what the run leaves open (versions, features) from the stack of software.container
/// ("current" when null).
Software complete_software(const Software& asked, const Stack& stack);

}  // namespace moecast
