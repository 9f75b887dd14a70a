#pragma once
/// THE knob table. Run files, --set, CLI flags, search axes, export, help and docs/knobs.md all
/// read it.
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
  std::string_view key;            ///< dotted run-file path: layout.tensor_model_parallel_size
  std::string_view short_name;     ///< tp; empty = none (accepted wherever the last part of key is)
  std::string_view megatron_flag;  ///< --tensor-model-parallel-size; empty = none
  std::string_view bridge_key;     ///< model.tensor_model_parallel_size; empty = none
  std::string domain;  ///< in words or as choices: "integer 1..1024", "none | selective | full"
  std::string_view default_text;  ///< as YAML; empty = required
  std::string_view help;          ///< one sentence
  /// Sets the knob; returns "" or "what is wrong; hint" and then leaves the run as it was.
  std::function<std::string(Run&, const Value&)> set;
  std::function<Value(const Run&)> get;
  bool as_written =
      false;  ///< scalars are taken as the user wrote them: a version 2.10 is the text "2.10"
  bool translated =
      false;  ///< Megatron spells the values differently, so its name is no other name of this key

  [[nodiscard]] std::string_view section() const;  ///< layout; empty for a top-level key
  [[nodiscard]] std::string_view leaf() const;     ///< tensor_model_parallel_size
  [[nodiscard]] bool is_map() const {
    return default_text == "{}";
  }  ///< an open map: its keys are the user's
  /// What the key may be called within its section: leaf, short name, Megatron's and Bridge's name.
  [[nodiscard]] std::vector<std::string> names() const;
};

const std::vector<Knob>& knob_table();
/// By full key, by short name (tp), by long Megatron name without its section
/// (tensor_model_parallel_size), or section.short (layout.tp).
const Knob* find_knob(std::string_view name);
/// Every spelling that find_knob takes, for nearest-name hints.
std::vector<std::string> knob_names();
/// docs/knobs.md, whole.
std::string knobs_markdown();

}  // namespace moecast
