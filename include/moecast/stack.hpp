#pragma once
/// What a software release makes of the machine: versions, which fusions and features are on,
/// allocator reserve, and tight factors on host and memory kernels. One file per container release
/// in hwdb/stacks (schema moecast/stack@1).
#include <map>
#include <string>
#include <vector>

#include "moecast/calibration.hpp"
#include "moecast/cluster.hpp"
#include "moecast/result.hpp"
#include "moecast/run.hpp"
#include "moecast/units.hpp"

namespace moecast {

/// What measured training steps said about a profile's parameters: MAP estimates with their joint
/// covariance, and what the model still misses. Written by `moecast validate --fit`.
struct StepFit {
  /// A parameter of every system in `scope` (its name, hopper | blackwell, grace | x86), or of
  /// every stack with a deviation of this scope: the profile's value times exp(log).
  struct Factor {
    std::string scope, path;
    double log = 0;
    double sd = 0;  ///< of log, posterior
  };
  std::vector<Factor> factors;
  std::vector<std::vector<double>> correlation;  ///< of the factors, lower triangle with diagonal
  /// Scatter of log time on rows that were left out of the fit.
  double residual_sd = 0;  ///< beyond the parameters' spread
  double half_width = 0;   ///< 90 % intervals reach this many standard deviations (heavy tails)
  double pair_sd = 0;      ///< of two rows of one (model, system) against each other
  int rows = 0;            ///< that the fit saw
  std::map<std::string, std::vector<std::string>> domain;  ///< what the rows covered, by knob
};

/// A parameter in which a stack may differ from its base, by a factor that steps tell: the fit's
/// prior is a factor of 1 with this standard deviation of its log. Stacks with one scope share the
/// factor.
struct Deviation {
  std::string scope, path;
  double sd = 0;
  std::string source;
};

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
  std::map<std::string, std::string> sources;        ///< per value
  std::map<std::string, ParameterValue> parameters;  ///< laid over the profile's, by path
  std::vector<Deviation> deviations;                 ///< of this stack and of those below it
  StepFit fit;
};

/// Lays a stack's own parameters and its fitted factors over a profile. A value measured on this
/// very system is moved by deviations of the stack only.
void apply_stack(const Stack& stack, const System& system, Profile& profile, bool fitted = true);
/// GPU generation, kind of host, or the system's own name: is it in `scope`?
bool in_scope(const System& system, const std::string& scope);
/// Does a factor of this scope move this parameter of this profile under this stack?
bool factor_moves(const Stack& stack, const System& system, const Profile& profile,
                  const std::string& scope, const std::string& path);

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
