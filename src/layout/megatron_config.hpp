#pragma once
/// THE table of Megatron's configuration fields. Readers (scripts, YAML, overrides), writers, rules
/// and mutations all work on it.
#include <variant>

#include <nlohmann/json.hpp>

#include "layout/megatron_knobs.hpp"
#include "moecast/result.hpp"

namespace moecast {

struct MegatronField {
  template <typename T>
  using At = T MegatronConfig::*;
  using Member = std::variant<At<bool>, At<std::optional<bool>>, At<int>, At<std::optional<int>>,
                              At<double>, At<std::optional<double>>, At<Word>, At<Words>,
                              At<std::string>, At<std::vector<int>>, At<std::vector<double>>>;
  std::string_view name;  ///< Megatron-LM's argument
  Member member;
  std::string flag = {};    ///< on the command line; of a bool it sets the opposite of the default
  std::string bridge = {};  ///< path in Bridge's ConfigContainer; its last part is a name too
  std::string_view run_key =
      {};  ///< the run file's knob that says it; "model" = the model; empty = none
  std::string_view bridge_default = {};  ///< JSON, where Bridge's default differs
  Words choices = {};                    ///< what argparse accepts; empty = anything
  std::string_view harness = {};         ///< options of the performance harness: "-tp", "-ep"
};

const std::vector<MegatronField>& megatron_fields();
/// By name, or by the last part of the Bridge path; nullptr when unknown.
const MegatronField* find_megatron_field(std::string_view name);
std::vector<std::string> megatron_field_names();

/// What an empty command line or an empty recipe means.
MegatronConfig default_config(Flavour flavour);

/// Sets one field ("env.NAME" sets the environment). null = None; a field that cannot be None keeps
/// its value. A problem (unknown name, wrong
/// type) leaves the configuration as it was; words that Megatron does not know are kept, as a rule
/// says so.
std::optional<Diagnostic> set(MegatronConfig& config, std::string_view name,
                              const nlohmann::json& value);
/// null where not set.
nlohmann::json get(const MegatronConfig& config, const MegatronField& field);

}  // namespace moecast
