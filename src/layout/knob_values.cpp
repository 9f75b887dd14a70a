#include "layout/knob_values.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "core/text.hpp"

namespace moecast {
namespace {

/// A wrong value as a message repeats it: text in quotes, the rest as JSON.
std::string shown(const Value& value) {
  if (value.is_string()) return quoted_excerpt(value.get_ref<const std::string&>());
  const std::string text = value.dump(-1, ' ', false, Value::error_handler_t::replace);
  return value.is_structured() ? quoted_excerpt(text) : text;
}

/// "none" and "null" mean the same wherever one of them is a choice.
std::string_view other_word_for_nothing(std::string_view word) {
  if (word == "null") return "none";
  return word == "none" ? "null" : "";
}

std::string unknown_name(const Value& value, const std::vector<std::string>& choices) {
  const std::string word = value.is_string() ? value.get<std::string>() : "";
  return fmt::format("{} is not a known value; {}", shown(value), suggestion(word, choices));
}

std::string with_null(bool null_allowed, std::string words) {
  return null_allowed ? "null | " + words : words;
}

}  // namespace

std::string must_be(const std::string& domain, const Value& value) {
  return fmt::format("must be {}, not {}", domain, shown(value));
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::string IntegerKind::parse(const Value& value, int& out) const {
  if (value.is_null() && null_is) {
    out = *null_is;
    return "";
  }
  // A double holds every integer in range; a JSON writer may have made 8 into 8.0.
  double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!(number >= low && number <= high) || number != std::floor(number)) {
    return must_be(domain(), value);
  }
  out = static_cast<int>(number);
  return "";
}

std::string IntegerKind::domain() const {
  return with_null(null_is.has_value(), fmt::format("integer {}..{}", low, high));
}

std::string NumberKind::parse(const Value& value, double& out) const {
  if (value.is_null() && null_is) {
    out = *null_is;
    return "";
  }
  double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!(number >= low && number <= high) || (above_low && number == low)) {
    return must_be(domain(), value);
  }
  out = number;
  return "";
}

std::string NumberKind::domain() const {
  std::string range = above_low ? fmt::format("number > {}, <= {}", low, high)
                                : fmt::format("number {}..{}", low, high);
  return with_null(null_is.has_value(), range);
}

std::string BooleanKind::parse(const Value& value, bool& out) {
  if (!value.is_boolean()) return must_be("true or false", value);
  out = value.get<bool>();
  return "";
}

std::string TextKind::parse(const Value& value, std::string& out) const {
  if (value.is_null() && null_is_empty) {
    out.clear();
    return "";
  }
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    return must_be(domain(), value);
  }
  out = value.get<std::string>();
  return "";
}

std::string parse_choice(const Value& value, const std::vector<std::string>& choices,
                         std::size_t& index) {
  const bool is_word = value.is_string() || value.is_boolean() || value.is_null();
  const std::string word = value.is_string() ? value.get<std::string>() : value.dump();
  const std::string_view other = other_word_for_nothing(word);
  auto found = std::find_if(choices.begin(), choices.end(), [&](const std::string& choice) {
    return choice == word || (!other.empty() && choice == other);
  });
  if (!is_word || found == choices.end()) return unknown_name(value, choices);
  index = static_cast<std::size_t>(found - choices.begin());
  return "";
}

Value show_choice(std::string_view text) {
  if (text == "null") return nullptr;
  if (text == "true" || text == "false") return text == "true";
  return std::string(text);
}

std::string parse_names(const Value& value, const std::vector<std::string>& choices,
                        std::vector<std::size_t>& indices) {
  if (value.is_null()) return "";
  if (!value.is_array()) return must_be("a list such as [" + choices.front() + "]", value);
  std::set<std::size_t> seen;
  for (const Value& item : value) {
    auto found = item.is_string()
                     ? std::find(choices.begin(), choices.end(), item.get<std::string>())
                     : choices.end();
    if (found == choices.end()) return unknown_name(item, choices);
    auto index = static_cast<std::size_t>(found - choices.begin());
    if (!seen.insert(index).second) return *found + " is named twice; drop one";
    indices.push_back(index);
  }
  return "";
}

}  // namespace moecast
