#pragma once
/// Megatron's options <-> the shape of a model.
#include <optional>

#include "layout/megatron_input.hpp"
#include "moecast/model_spec.hpp"

namespace moecast {

/// The model that the options describe; name and warnings are left open. vocab_size 0 = not said.
/// nullopt when they describe none (num_layers, hidden_size), or one of layers that only a shipped
/// model can say (Mamba, gated delta net).
std::optional<ModelSpec> model_of(const MegatronInput& input);

/// A shipped model with Hugging Face overrides that make it the same.
struct ModelMatch {
  std::string name;
  nlohmann::ordered_json overrides = nlohmann::ordered_json::object();
  std::vector<std::string> differences;  ///< keys that differ all the same: details of no weight
};
/// A shipped model by name, read once; nullptr when there is none.
const ModelSpec* shipped_model(std::string_view name);
std::optional<ModelMatch> match_shipped_model(const ModelSpec& model);
/// The shipped model that a recipe of the performance harness is named after; empty = none.
std::string model_of_recipe(std::string_view recipe);

/// Options of Megatron-LM for what no field of MegatronConfig holds: --window-size 127,0.
std::vector<std::pair<std::string, std::string>> more_model_options(const ModelSpec& model);

}  // namespace moecast
