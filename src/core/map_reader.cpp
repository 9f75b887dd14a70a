#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/document.hpp"
#include "core/text.hpp"

namespace moecast {
namespace {

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::sequence:
      return "a list";
    case Node::Kind::map:
      return "a map";
    case Node::Kind::scalar:
      break;
  }
  return node.quoted ? "the text " + quoted_excerpt(node.scalar) : quoted_excerpt(node.scalar);
}

/// The same scalar without its quotes and digit separators: what the user probably meant.
Node bare(const Node& node) {
  Node out = node;
  out.quoted = false;
  std::erase_if(out.scalar, [](char c) { return c == '_' || c == ','; });
  return out;
}

std::string number_hint(const Node& node) {
  const Node meant = bare(node);
  return node.is_scalar() && meant.as_double() ? "write " + meant.scalar : "";
}

std::string integer_hint(const Node& node) {
  constexpr double kLargest = std::numeric_limits<int>::max();
  const std::optional<double> value = node.is_scalar() ? bare(node).as_double() : std::nullopt;
  if (!value || std::abs(*value) > kLargest || std::floor(*value) != *value) return "";
  return fmt::format("write {}", static_cast<long long>(*value));
}

}  // namespace

MapReader::MapReader(const Document& doc, const Node& node, std::string path, Diagnostics& problems)
    : doc_(doc), node_(node), path_(std::move(path)), problems_(problems) {
  if (!node.is_map() && !node.is_null()) {
    complain(node, "", fmt::format("expected a map of keys, found {}", describe(node)));
  }
}

const Node* MapReader::get(std::string_view key) {
  known_.emplace_back(key);
  return node_.find(key);
}

const Node* MapReader::require(std::string_view key) {
  const Node* node = get(key);
  if (node_.is_map() || node_.is_null()) {
    if (node == nullptr) complain(node_, key, "is required and missing");
    if (node != nullptr && node->is_null()) complain(*node, key, "needs a value");
  }
  return node != nullptr && node->is_null() ? nullptr : node;
}

double MapReader::number(std::string_view key, double fallback) {
  const Node* node = get(key);
  if (node == nullptr || node->is_null()) return fallback;
  const std::optional<double> value = node->as_double();
  if (!value)
    complain(*node, key, "expected a number, found " + describe(*node), number_hint(*node));
  return value.value_or(fallback);
}

int MapReader::integer(std::string_view key, int fallback) {
  const Node* node = get(key);
  if (node == nullptr || node->is_null()) return fallback;
  const std::optional<long long> value = node->as_int();
  if (!value) {
    complain(*node, key, "expected a whole number, found " + describe(*node), integer_hint(*node));
    return fallback;
  }
  if (*value < std::numeric_limits<int>::min() || *value > std::numeric_limits<int>::max()) {
    complain(*node, key, fmt::format("{} is out of range", *value));
    return fallback;
  }
  return static_cast<int>(*value);
}

bool MapReader::boolean(std::string_view key, bool fallback) {
  const Node* node = get(key);
  if (node == nullptr || node->is_null()) return fallback;
  const std::optional<bool> value = node->as_bool();
  if (!value) {
    complain(*node, key, "expected true or false, found " + describe(*node),
             "write true or false, without quotes");
  }
  return value.value_or(fallback);
}

std::string MapReader::text(std::string_view key, std::string fallback) {
  const Node* node = get(key);
  if (node == nullptr || node->is_null()) return fallback;
  const std::optional<std::string> value = node->as_string();
  if (!value) complain(*node, key, "expected text, found " + describe(*node));
  return value.value_or(std::move(fallback));
}

double MapReader::required_number(std::string_view key) {
  return require(key) != nullptr ? number(key, 0.0) : 0.0;
}

int MapReader::required_integer(std::string_view key) {
  return require(key) != nullptr ? integer(key, 0) : 0;
}

std::string MapReader::required_text(std::string_view key) {
  return require(key) != nullptr ? text(key, "") : "";
}

void MapReader::ignore(std::string_view key) { known_.emplace_back(key); }

void MapReader::finish() {
  constexpr int kMostShown = 20;
  int unknown = 0;
  for (const Node::Entry& entry : node_.entries) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    if (++unknown > kMostShown) continue;
    problems_.push_back(
        doc_.problem(entry.mark, path_of(entry.key), "unknown key", suggestion(entry.key, known_)));
  }
  if (unknown > kMostShown) {
    complain(node_, "", fmt::format("{} more unknown keys", unknown - kMostShown));
  }
}

void MapReader::complain(const Node& at, std::string_view key, std::string message,
                         std::string hint) {
  problems_.push_back(doc_.problem(at.mark, path_of(key), std::move(message), std::move(hint)));
}

std::string MapReader::path_of(std::string_view key) const {
  if (path_.empty() || key.empty()) return path_ + std::string(key);
  return fmt::format("{}.{}", path_, key);
}

}  // namespace moecast
