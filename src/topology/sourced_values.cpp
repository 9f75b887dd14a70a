#include "topology/sourced_values.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace moecast {
namespace {

constexpr std::string_view kForm =
    "write {value: ..., kind: datasheet|measured|derived|assumed, source: \"...\"}";

void check_origin(MapReader& fields, const Node& node) {
  static const std::vector<std::string> kKinds = {"datasheet", "measured", "derived", "assumed"};
  const Node* source = fields.get("source");
  const std::string text = fields.text("source", "");
  if (source == nullptr || text.find_first_not_of(" \t") == std::string::npos) {
    fields.complain(source == nullptr ? node : *source, "source", "every hwdb value needs a source",
                    "name the data sheet, repository or measurement that it comes from");
  }
  const Node* kind = fields.require("kind");
  const std::string name = fields.text("kind", "");
  if (kind != nullptr && std::find(kKinds.begin(), kKinds.end(), name) == kKinds.end()) {
    fields.complain(*kind, "kind", fmt::format("'{}' is not a kind of value", name),
                    suggestion(name, kKinds));
  }
}

}  // namespace

SourcedValues::SourcedValues(const Document& doc, const Node& section, std::string path,
                             Diagnostics& problems)
    : doc_(doc), problems_(problems), section_(doc, section, std::move(path), problems) {}

const Node* SourcedValues::fields_of(std::string_view key) {
  const Node* node = section_.require(key);
  if (node == nullptr || node->is_map()) return node;
  section_.complain(*node, key, "a bare value has no source", std::string(kForm));
  return nullptr;
}

template <typename T, typename Read>
T SourcedValues::read(std::string_view key, T fallback, Read read) {
  const Node* node = fields_of(key);
  if (node == nullptr) return fallback;
  MapReader fields(doc_, *node, section_.path_of(key), problems_);
  check_origin(fields, *node);
  const Node* value = fields.require("value");
  T result = value == nullptr ? fallback : read(fields, *value);
  fields.finish();
  return result;
}

double SourcedValues::number(std::string_view key, bool zero_allowed) {
  return read(key, 1.0, [&](MapReader& fields, const Node& node) {
    const double value = fields.number("value", 1.0);
    if (value < 0 || (value == 0 && !zero_allowed)) {
      fields.complain(node, "value",
                      fmt::format("{} is not {}", value, zero_allowed ? "0 or more" : "above 0"));
    }
    return value;
  });
}

double SourcedValues::positive(std::string_view key) { return number(key, false); }
double SourcedValues::not_negative(std::string_view key) { return number(key, true); }

int SourcedValues::count(std::string_view key) {
  constexpr int kMost = 100'000;
  return read(key, 1, [&](MapReader& fields, const Node& node) {
    const int value = fields.integer("value", 1);
    if (value < 1 || value > kMost) {
      fields.complain(node, "value", fmt::format("{} is not between 1 and {}", value, kMost));
    }
    return value;
  });
}

bool SourcedValues::flag(std::string_view key) {
  return read(key, false,
              [](MapReader& fields, const Node&) { return fields.boolean("value", false); });
}

std::string SourcedValues::text(std::string_view key) {
  return read(key, std::string(),
              [](MapReader& fields, const Node&) { return fields.text("value", ""); });
}

std::string SourcedValues::plain_text(std::string_view key) { return section_.required_text(key); }

}  // namespace moecast
