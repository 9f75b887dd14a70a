#pragma once
/// The names one quantity goes by in Hugging Face configs, and what to make of keys that are no
/// quantity of ours.
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moecast {

/// A quantity: `names` are the HF spellings, the usual one first (unused entries are empty).
struct HfField {
  std::array<std::string_view, 7> names;

  [[nodiscard]] std::string_view canonical() const { return names[0]; }
  [[nodiscard]] bool has(std::string_view key) const;
};

std::span<const HfField> hf_fields();
/// The field a key spells, or nullptr.
const HfField* hf_field(std::string_view key);

/// Per-layer lists and strings: cutting layers keeps their front (and an MTP tail beyond the
/// decoder layers).
bool is_per_layer(std::string_view key);
/// Lists of layer numbers.
bool is_layer_index_list(std::string_view key);

/// A key that costs time or memory and is not modelled, with its effect.
struct HfUnmodelled {
  std::string_view key;
  std::string_view effect;
};
std::span<const HfUnmodelled> hf_unmodelled();

/// Keys without effect on shape or cost (initialisation, tokens, rope, cache, generation ...).
bool is_irrelevant(std::string_view key);

/// Every spelling of every field, for "did you mean".
std::vector<std::string> hf_field_names();

}  // namespace moecast
