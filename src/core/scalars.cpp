#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/document.hpp"

namespace moecast {
namespace {

/// The text of a number as from_chars takes it, or "": no blanks, one sign, no leading zeros (octal
/// elsewhere).
std::string_view number_text(const Node& node) {
  if (!node.is_scalar() || node.quoted) return "";
  std::string_view text = node.scalar;
  const std::size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  const std::string_view digits = text.substr(sign);
  if (digits.empty() || !(digits[0] == '.' || (digits[0] >= '0' && digits[0] <= '9'))) return "";
  if (digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9') return "";
  return text.starts_with('+') ? digits : text;
}

template <typename T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

nlohmann::ordered_json scalar_to_json(const Node& node) {
  if (const auto value = node.as_bool()) return *value;
  if (const auto value = node.as_int()) return *value;
  if (const auto value = node.as_double()) return *value;
  return node.scalar;
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &found->value;
}

std::optional<double> Node::as_double() const {
  const auto value = whole_number<double>(number_text(*this));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<long long> Node::as_int() const {
  return whole_number<long long>(number_text(*this));
}

std::optional<bool> Node::as_bool() const {
  if (!is_scalar() || quoted) return std::nullopt;
  if (scalar == "true") return true;
  if (scalar == "false") return false;
  return std::nullopt;
}

std::optional<std::string> Node::as_string() const {
  return is_scalar() ? std::optional(scalar) : std::nullopt;
}

nlohmann::ordered_json Node::to_json() const {
  using Json = nlohmann::ordered_json;
  if (is_null()) return nullptr;
  if (is_scalar()) return scalar_to_json(*this);
  if (is_sequence()) {
    Json out = Json::array();
    for (const Node& item : items) out.push_back(item.to_json());
    return out;
  }
  Json out = Json::object();
  auto& object = out.get_ref<Json::object_t&>();
  // Keys are unique already; ordered_map's own insertion would search all of them every time.
  for (const Entry& entry : entries) object.push_back({entry.key, entry.value.to_json()});
  return out;
}

}  // namespace moecast
