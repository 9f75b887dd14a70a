/// model_overrides on a HF config: replaced before anything is interpreted, so every rule sees one
/// consistent config.
#include <algorithm>

#include "model/hf_config.hpp"
#include "model/hf_fields.hpp"
#include "model/import_hf.hpp"

namespace moecast {
namespace {

void collect_keys(const Node& map, std::vector<std::string>& keys) {
  for (const Node::Entry& e : map.entries) {
    keys.push_back(e.key);
    if (e.value.is_map()) collect_keys(e.value, keys);
  }
}

/// vision_config and the like have their own num_hidden_layers.
bool is_unmodelled(std::string_view key) {
  return std::any_of(hf_unmodelled().begin(), hf_unmodelled().end(),
                     [&](const HfUnmodelled& u) { return u.key == key; });
}

/// Replaces every entry that `same` accepts, on every level; true if there was one.
bool replace(Node& map, const Node& value, auto same) {
  bool found = false;
  for (Node::Entry& e : map.entries) {
    if (same(e.key)) {
      e.value = value;
      found = true;
    } else if (e.value.is_map() && !is_unmodelled(e.key)) {
      found = replace(e.value, value, same) || found;
    }
  }
  return found;
}

std::size_t current_layers(Node& scope) {
  for (const Node::Entry& e : scope.entries) {
    const HfField* field = hf_field(e.key);
    if (field == nullptr || e.value.is_null()) continue;
    if (field->canonical() == "num_hidden_layers") {
      return static_cast<std::size_t>(std::max(0LL, e.value.as_int().value_or(0)));
    }
  }
  for (const Node::Entry& e : scope.entries) {
    if (e.key == "layers_block_type") return e.value.items.size();
    if (e.key == "hybrid_override_pattern") return e.value.scalar.size();
  }
  return 0;
}

/// Keeps the first `to` of the decoder's `from` entries, and what follows them (the MTP layers').
void cut_layers(Node& scope, std::size_t from, std::size_t to) {
  if (to >= from) return;
  for (Node::Entry& e : scope.entries) {
    const auto first = static_cast<std::ptrdiff_t>(to), last = static_cast<std::ptrdiff_t>(from);
    if (is_per_layer(e.key) && e.value.is_sequence() && e.value.items.size() >= from) {
      e.value.items.erase(e.value.items.begin() + first, e.value.items.begin() + last);
    } else if (is_per_layer(e.key) && e.value.is_scalar() && e.value.scalar.size() == from &&
               e.key == "hybrid_override_pattern") {
      e.value.scalar.resize(to);
    } else if (is_layer_index_list(e.key) && e.value.is_sequence()) {
      std::erase_if(e.value.items, [&](const Node& n) {
        return n.as_int().value_or(0) >= static_cast<long long>(to);
      });
    }
  }
}

}  // namespace

void apply_hf_overrides(Node& root, const nlohmann::ordered_json& overrides,
                        Diagnostics& problems) {
  std::vector<std::string> known = hf_field_names();
  collect_keys(root, known);
  for (const auto& [key, json] : overrides.items()) {
    const std::string name = key;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      problems.push_back({"", 0, 0, "model_overrides." + name,
                          "is not a key of this model's config", suggestion(name, known)});
      continue;
    }
    Result<Node> value = parse_value(json.dump(), "model_overrides");
    if (!value) {
      problems.insert(problems.end(), value.problems().begin(), value.problems().end());
      continue;
    }
    Node& scope = *language_scope(root);
    const HfField* field = hf_field(name);
    if (field != nullptr && field->canonical() == "num_hidden_layers") {
      const long long layers = value.value().as_int().value_or(0);
      if (layers > 0) cut_layers(scope, current_layers(scope), static_cast<std::size_t>(layers));
      const bool patterned =
          scope.find("layers_block_type") != nullptr && scope.find("num_hidden_layers") == nullptr;
      if (patterned && layers > 0 && static_cast<std::size_t>(layers) == current_layers(scope))
        continue;
    }
    const auto same = [&](std::string_view other) {
      return field != nullptr ? field->has(other) : other == name;
    };
    if (!replace(root, value.value(), same)) scope.entries.push_back({name, Mark{}, value.value()});
  }
}

}  // namespace moecast
