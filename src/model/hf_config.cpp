#include "model/hf_config.hpp"

#include <algorithm>
#include <limits>

#include "model/hf_fields.hpp"

namespace moecast {
namespace {

constexpr std::string_view kNesting[] = {"text_config", "llm_config", "thinker_config",
                                         "language_config"};
constexpr std::string_view kSubMaps[] = {"ffn_config", "attn_config"};
constexpr long long kLargest = 1'000'000'000;

const Node::Entry* entry_of(const Node& map, std::string_view key) {
  for (const Node::Entry& e : map.entries) {
    if (e.key == key && !e.value.is_null()) return &e;
  }
  return nullptr;
}

const Node::Entry* nested_entry(const Node& map) {
  for (std::string_view key : kNesting) {
    const Node::Entry* e = entry_of(map, key);
    if (e != nullptr && e->value.is_map()) return e;
  }
  return nullptr;
}

bool same_value(const Node& a, const Node& b) { return a.to_json() == b.to_json(); }

}  // namespace

const Node* language_scope(const Node& root) {
  const Node* scope = &root;
  while (const Node::Entry* inner = nested_entry(*scope)) scope = &inner->value;
  return scope;
}

Node* language_scope(Node& root) { return const_cast<Node*>(language_scope(std::as_const(root))); }

HfConfig::HfConfig(const Document& doc, const Node& root, Diagnostics& problems)
    : doc_(doc), problems_(problems) {
  scopes_ = {&root};
  prefixes_ = {""};
  while (const Node::Entry* inner = nested_entry(*scopes_.front())) {
    scopes_.insert(scopes_.begin(), &inner->value);
    prefixes_.insert(prefixes_.begin(), prefixes_.front() + inner->key + ".");
  }
  std::ptrdiff_t at = 1;
  for (std::string_view key : kSubMaps) {
    const Node::Entry* e = entry_of(*scopes_.front(), key);
    if (e == nullptr || !e->value.is_map()) continue;
    scopes_.insert(scopes_.begin() + at, &e->value);
    prefixes_.insert(prefixes_.begin() + at, prefixes_.front() + e->key + ".");
    ++at;
  }
}

HfConfig::Hit HfConfig::lookup(std::string_view field) const {
  const HfField* aliases = hf_field(field);
  if (aliases == nullptr) return {};
  for (std::size_t i = 0; i < scopes_.size(); ++i) {
    for (std::string_view name : aliases->names) {
      const Node::Entry* e = name.empty() ? nullptr : entry_of(*scopes_[i], name);
      if (e != nullptr) return {e, prefixes_[i] + e->key};
    }
  }
  return {};
}

const Node* HfConfig::find(std::string_view field) {
  asked_.insert(std::string(field));
  const Hit hit = lookup(field);
  if (hit.entry == nullptr) return nullptr;
  for (std::string_view name : hf_field(field)->names) {
    for (const Node* scope : scopes_) {
      const Node::Entry* other = name.empty() ? nullptr : entry_of(*scope, name);
      if (other == nullptr) continue;
      // the same key on an outer level is a default; another spelling on any level is a second
      // opinion
      if (other->key == hit.entry->key || same_value(other->value, hit.entry->value)) continue;
      if (!clashes_.insert(std::string(field)).second) continue;
      problems_.push_back(
          doc_.problem(other->mark, other->key,
                       "contradicts '" + hit.entry->key + "', which is the same quantity",
                       "keep one of the two"));
    }
  }
  return &hit.entry->value;
}

void HfConfig::complain(std::string_view field, std::string message, std::string hint) {
  const Hit hit = lookup(field);
  const Mark mark = hit.entry != nullptr ? hit.entry->value.mark : scopes_.front()->mark;
  const std::string key = hit.entry != nullptr ? hit.path : prefixes_.front() + std::string(field);
  for (const Diagnostic& d : problems_) {
    if (d.key == key && d.message == message) return;
  }
  problems_.push_back(doc_.problem(mark, key, std::move(message), std::move(hint)));
}

int HfConfig::whole_number(const Node& node, std::string_view field, int least) {
  const Node* value = &node;
  if (node.is_sequence() && !node.items.empty()) {
    value = &node.items.front();
    const bool uniform = std::all_of(node.items.begin(), node.items.end(),
                                     [&](const Node& item) { return same_value(item, *value); });
    if (!uniform) complain(field, "differs from layer to layer, which is not supported");
  }
  const std::optional<long long> number = value->as_int();
  if (!number) {
    complain(field, value->is_scalar() ? "'" + value->scalar + "' is not a whole number"
                                       : "must be a whole number");
    return least;
  }
  if (*number < least || *number > kLargest) {
    complain(field, std::to_string(*number) + " is out of range",
             "must be at least " + std::to_string(least));
    return least;
  }
  return static_cast<int>(*number);
}

int HfConfig::count(std::string_view field, int fallback) {
  const Node* node = find(field);
  return node == nullptr ? fallback : whole_number(*node, field, 0);
}

int HfConfig::required(std::string_view field, std::string hint) {
  const Node* node = find(field);
  if (node != nullptr) return whole_number(*node, field, 1);
  complain(field, "is missing", std::move(hint));
  return 1;
}

bool HfConfig::flag(std::string_view field, bool fallback) {
  const Node* node = find(field);
  if (node == nullptr) return fallback;
  const std::optional<bool> value = node->as_bool();
  if (!value) complain(field, "must be true or false");
  return value.value_or(fallback);
}

std::string HfConfig::text(std::string_view field) {
  const Node* node = find(field);
  if (node == nullptr) return "";
  if (!node->is_scalar()) complain(field, "must be a string");
  return node->as_string().value_or("");
}

std::vector<int> HfConfig::integers(std::string_view field) {
  const Node* node = find(field);
  std::vector<int> values;
  if (node == nullptr) return values;
  if (!node->is_sequence()) {
    complain(field, "must be a list of whole numbers");
    return values;
  }
  for (const Node& item : node->items) {
    const std::optional<long long> number = item.as_int();
    const bool good = number && *number >= 0 && *number <= kLargest;
    if (!good) {
      problems_.push_back(
          doc_.problem(item.mark, std::string(field), "must hold whole numbers, none negative"));
    }
    values.push_back(good ? static_cast<int>(*number) : 0);
  }
  return values;
}

std::vector<std::string> HfConfig::words(std::string_view field) {
  const Node* node = find(field);
  std::vector<std::string> values;
  if (node == nullptr) return values;
  if (!node->is_sequence()) {
    complain(field, "must be a list");
    return values;
  }
  for (const Node& item : node->items) values.push_back(item.as_string().value_or(""));
  return values;
}

std::string HfConfig::outer_text(std::string_view key) const {
  for (const Node* scope : scopes_) {
    const Node::Entry* e = entry_of(*scope, key);
    if (e == nullptr) continue;
    const Node& value =
        e->value.is_sequence() && !e->value.items.empty() ? e->value.items.front() : e->value;
    if (value.is_scalar()) return value.scalar;
  }
  return "";
}

std::string HfConfig::architecture_name() const {
  // the outermost level names the whole model
  const Node::Entry* e = entry_of(*scopes_.back(), "architectures");
  if (e != nullptr && e->value.is_sequence() && !e->value.items.empty()) {
    return e->value.items.front().as_string().value_or("");
  }
  const std::string inner = outer_text("architectures");
  return inner.empty() ? outer_text("model_type") : inner;
}

const HfArchitecture* HfConfig::architecture() const {
  if (const HfArchitecture* a =
          find_architecture(outer_text("model_type"), outer_text("architectures")))
    return a;
  return find_architecture("", architecture_name());
}

bool HfConfig::has_trait(HfTrait trait) const {
  const HfArchitecture* a = architecture();
  return a != nullptr && a->has(trait);
}

}  // namespace moecast
