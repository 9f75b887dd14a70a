#include <algorithm>

#include "core/document.hpp"
#include "model/hf_fields.hpp"
#include "model/model_yaml.hpp"
#include "model/spec_fields.hpp"

namespace moecast {
namespace {

template <typename T>
bool set_number(std::span<const SpecField<T>> fields, std::string_view hf, int value, T& target) {
  for (const SpecField<T>& f : fields) {
    if (f.hf != hf || f.number == nullptr) continue;
    target.*f.number = value;
    return true;
  }
  return false;
}

/// A mixer's quantity changes wherever a mixer has it.
bool set_mixers(std::string_view hf, int value, ModelSpec& m) {
  bool found = false;
  for (const SpecField<Mixer>& f : mixer_fields()) {
    if (f.hf != hf || f.number == nullptr) continue;
    for (Mixer& mixer : m.mixers) {
      if (mixer.*f.number == 0) continue;
      mixer.*f.number = value;
      found = true;
    }
  }
  return found;
}

/// An empty answer means done.
std::string set_layers(std::string_view field, int value, ModelSpec& m) {
  if (field == "num_hidden_layers") {
    if (value < 1 || static_cast<std::size_t>(value) > m.layers.size()) {
      return "can only cut the model's " + std::to_string(m.layers.size()) + " layers";
    }
    m.layers.resize(static_cast<std::size_t>(value));
    return "";
  }
  for (std::size_t i = 0; i < m.layers.size(); ++i) {  // first_k_dense_replace
    if (m.layers[i].ffn == FfnKind::none) continue;
    m.layers[i].ffn = static_cast<int>(i) < value ? FfnKind::dense : FfnKind::moe;
  }
  return "";
}

std::string override_one(std::string_view field, int value, ModelSpec& m) {
  if (field == "num_hidden_layers" || field == "first_k_dense_replace")
    return set_layers(field, value, m);
  if (field == "num_nextn_predict_layers" && value > 0 && m.mtp_pattern.empty())
    m.mtp_pattern = {m.layers.back()};
  if (field == "num_nextn_predict_layers" && value == 0) m.mtp_pattern.clear();
  if (set_number(model_fields(), field, value, m) || set_number(moe_fields(), field, value, m.moe))
    return "";
  return set_mixers(field, value, m) ? "" : "has no effect on this model";
}

}  // namespace

void override_spec(ModelSpec& m, const nlohmann::ordered_json& overrides, Diagnostics& problems) {
  const std::vector<std::string> known = hf_field_names();
  for (const auto& [key, value] : overrides.items()) {
    const HfField* field = hf_field(key);
    std::string trouble, hint;
    if (field == nullptr) {
      trouble = "is not a key of a HF config";
      hint = suggestion(key, known);
    } else if (!value.is_number_integer() || value < 0 || value > 1'000'000'000) {
      trouble = "must be a whole number, not negative";
    } else {
      trouble = override_one(field->canonical(), value.get<int>(), m);
    }
    if (!trouble.empty()) problems.push_back({"", 0, 0, "model_overrides." + key, trouble, hint});
  }
}

}  // namespace moecast
