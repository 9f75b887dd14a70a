#pragma once
/// The one evaluator. A Problem freezes everything that a layout does not change; evaluate() is
/// called by estimate and search alike.
#include <memory>
#include <string>

#include "moecast/cluster.hpp"
#include "moecast/estimate.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/result.hpp"

namespace moecast {

/// A full forecast of a run: loads model, system, profile and stack, checks the rules, evaluates,
/// ablates, advises. Problems = unreadable or illegal (then Diagnostic::key holds the knob and the
/// message starts with the rule id in brackets).
struct EstimateOptions {
  bool trace = false;
  bool advice = true;
  bool memory_detail = false;
  bool enforce_rules =
      true;  ///< false: forecast although rules are broken (measured runs of another release)
};
Result<Estimate> estimate(const Run& run, const EstimateOptions& options = {});

}  // namespace moecast
