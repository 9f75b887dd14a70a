#pragma once
/// THE knob table. Run files, --set, CLI flags, search axes, export, help and docs/knobs.md all read it.
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "moecast/run.hpp"

namespace moecast {

using Value = nlohmann::ordered_json;

struct Knob {
  std::string_view key;           ///< dotted run-file path: layout.tensor_model_parallel_size
  std::string_view short_name;    ///< tp; empty = none (accepted wherever the last part of key is)
  std::string_view megatron_flag; ///< --tensor-model-parallel-size; empty = none
  std::string_view bridge_key;    ///< model.tensor_model_parallel_size; empty = none
  std::string_view domain;        ///< in words or as choices: "integer >= 1", "none|selective|full"
  std::string_view default_text;  ///< as YAML; empty = required
  std::string_view help;          ///< one sentence
  /// Sets the knob; returns "" or what is wrong with the value.
  std::function<std::string(Run&, const Value&)> set;
  std::function<Value(const Run&)> get;
};

const std::vector<Knob>& knob_table();
/// By full key, by short name (tp), by long Megatron name without its section (tensor_model_parallel_size), or section.short (layout.tp).
const Knob* find_knob(std::string_view name);
/// Every spelling that find_knob takes, for nearest-name hints.
std::vector<std::string> knob_names();

}  // namespace moecast
