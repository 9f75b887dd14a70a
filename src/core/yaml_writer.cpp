#include <algorithm>
#include <array>
#include <cctype>

#include "core/document.hpp"
#include "core/text.hpp"

namespace moecast {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWidth = 100;
constexpr std::size_t kLongestSimpleKey = 1000;  // YAML 1.2 section 7.4.2 allows 1024

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_plain_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view(" _./+*()|%@=<>^$;!'-").find(c) != std::string_view::npos;
}

/// Words and digits that YAML 1.1 readers (PyYAML among them) or ours take for something else than
/// text.
bool looks_like_other_type(const std::string& text) {
  constexpr std::array kWords = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (std::find(kWords.begin(), kWords.end(), lower) != kWords.end()) return true;
  return is_digit(text[0]) &&
         lower.find_first_not_of("0123456789abcdefox_:.+-") == std::string::npos;
}

bool is_plain(const std::string& text) {
  if (text.empty() || text.back() == ' ' || looks_like_other_type(text)) return false;
  const char first = text[0];
  if (!(std::isalnum(static_cast<unsigned char>(first)) != 0 || first == '_' || first == '/'))
    return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool inner_colon = text[i] == ':' && i + 1 < text.size() && text[i + 1] == '/';
    if (!is_plain_char(text[i]) && !inner_colon) return false;
  }
  return true;
}

/// A JSON string is a double-quoted YAML scalar; bytes that are not UTF-8 become U+FFFD.
std::string quoted(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string scalar_text(const Json& value) {
  if (!value.is_string()) return quoted(value);
  const auto& text = value.get_ref<const std::string&>();
  return is_plain(text) ? text : quoted(value);
}

bool is_block(const Json& value) {
  if (!value.is_structured() || value.empty()) return false;
  return value.is_object() || std::any_of(value.begin(), value.end(),
                                          [](const Json& item) { return item.is_structured(); });
}

/// One line for anything that is not a block; a long list continues on lines indented by `indent`.
std::string inline_text(const Json& value, std::size_t column, std::size_t indent) {
  if (!value.is_structured()) return scalar_text(value);
  if (value.empty()) return value.is_object() ? "{}" : "[]";
  std::string out = "[";
  std::size_t width = column + 1;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string item = scalar_text(value[i]) + (i + 1 < value.size() ? "," : "]");
    const bool wraps = i > 0 && width + 1 + item.size() > kWidth;
    const std::string gap = i == 0 ? "" : wraps ? "\n" + std::string(indent, ' ') : " ";
    width = (wraps ? indent : width + gap.size()) + item.size();
    out += gap + item;
  }
  return out;
}

void write_block(const Json& value, std::size_t indent, std::string& out);

void write_map(const Json& map, std::size_t indent, std::string& out) {
  const std::string margin(indent, ' ');
  for (const auto& [key, value] : map.items()) {
    std::string name = scalar_text(Json(key));
    if (name.size() > kLongestSimpleKey) name = "? " + name + "\n" + margin;
    out += margin + name + ":";
    if (is_block(value)) {
      out += "\n";
      write_block(value, indent + 2, out);
    } else {
      out += " " + inline_text(value, indent + name.size() + 2, indent + 2) + "\n";
    }
  }
}

void write_sequence(const Json& list, std::size_t indent, std::string& out) {
  for (const Json& item : list) {
    const std::size_t start = out.size();
    if (is_block(item)) {
      write_block(item, indent + 2, out);
      out[start + indent] = '-';  // in the margin of the item's first line
    } else {
      out += std::string(indent, ' ') + "- " + inline_text(item, indent + 2, indent + 2) + "\n";
    }
  }
}

void write_block(const Json& value, std::size_t indent, std::string& out) {
  if (value.is_object()) {
    write_map(value, indent, out);
  } else {
    write_sequence(value, indent, out);
  }
}

}  // namespace

std::string to_yaml(const Json& value) {
  std::string out;
  if (is_block(value)) {
    write_block(value, 0, out);
  } else {
    out = inline_text(value, 0, 2) + "\n";
  }
  return out;
}

}  // namespace moecast
