#include "core/text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace moecast {
namespace {

bool is_text_control(unsigned char c) { return c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

Mark MarkCounter::at(std::size_t offset) {
  for (offset = std::min(offset, text_.size()); offset_ < offset; ++offset_) {
    const bool new_line = text_[offset_] == '\n';
    mark_ = new_line ? Mark{mark_.line + 1, 1} : Mark{mark_.line, mark_.column + 1};
  }
  return mark_;
}

std::string quoted_excerpt(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  if (text.size() <= kLongest) return fmt::format("'{}'", text);
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return fmt::format("'{}...'", text.substr(0, end));
}

// The well-formed sequences are table 3-7 of the Unicode standard: no overlong forms, no
// surrogates, at most U+10FFFF.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead < 0xC2   ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF5 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

void check_text(std::string_view text, const Document& doc, Diagnostics& problems) {
  if (text.size() > kMaxFileBytes) {
    problems.push_back(
        doc.problem({}, "", fmt::format("the file is larger than {} MiB", kMaxFileBytes >> 20),
                    "is this the right file?"));
    return;
  }
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0 || (c < 0x20 && !is_text_control(c))) {
      const std::string what = length == 0 ? "not UTF-8 text" : "a control character, not text";
      problems.push_back(doc.problem(MarkCounter(text).at(i), "",
                                     fmt::format("byte 0x{:02x} is {}", c, what),
                                     "write the file as plain UTF-8"));
      return;
    }
    i += length;
  }
}

bool is_null_text(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

}  // namespace moecast
