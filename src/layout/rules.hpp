#pragma once
/// THE rule table: what Megatron-Core, Megatron-LM and Megatron-Bridge would refuse, warn about or silently change.
#include <string>
#include <string_view>
#include <vector>

#include "moecast/cluster.hpp"
#include "moecast/layout.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/run.hpp"

namespace moecast {

enum class Severity : std::uint8_t { error, warning, info };

/// Versions as numbers for comparison (2.14.0 -> 2014000); 0 = unknown.
struct Versions {
  long pytorch = 0, transformer_engine = 0, megatron_core = 0, bridge = 0;
};
Versions parse_versions(const Software& software);

/// Everything that a rule may read. Cheap to build: pointers and integers, so that the search can check each candidate.
struct RuleInput {
  const Layout& layout;
  const ModelSpec& model;
  const System& system;
  const Run& run;  ///< software, routing, capacity factor; layout of the run is NOT read here
  int gpus = 0, seq_length = 0, global_batch_size = 0;
  Versions versions;
};

struct Rule {
  std::string_view id;         ///< EP-OVERLAP-VPP
  Severity severity = Severity::error;
  std::vector<std::string_view> keys;  ///< knobs read
  std::string_view condition;  ///< in words: what must hold
  std::string_view fix;
  std::string_view applies;    ///< "bridge", "megatron-core>=0.14", "" = always
  std::string_view source;     ///< repository file that enforces it
  bool runtime = false;        ///< fails only when training starts
  bool (*broken)(const RuleInput&) = nullptr;           ///< no allocation: the search calls it per candidate
  std::string (*message)(const RuleInput&) = nullptr;   ///< with the values
};

struct Finding {
  std::string rule;
  Severity severity = Severity::error;
  std::vector<std::string> keys;
  std::string message, fix, applies;
  bool runtime = false;
};

const std::vector<Rule>& rule_table();
/// The smallest world that both meshes divide: PP * lcm(TP * CP, ETP * EP).
long minimum_gpus(const Layout& layout);
/// docs/rules.md.
std::string rules_markdown();
/// All findings, errors first, table order within a severity.
std::vector<Finding> check_rules(const RuleInput& input);
/// Index of the first broken error rule in table order, or -1. The hot path: allocates only to read a layout string without a
/// stated VPP.
int first_broken_rule(const RuleInput& input);

}  // namespace moecast
