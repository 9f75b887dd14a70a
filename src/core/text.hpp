#pragma once
/// Text as the readers see it: positions, excerpts for messages, and what is not text at all.
#include <cstddef>
#include <string>
#include <string_view>

#include "core/document.hpp"

namespace moecast {

inline constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxDepth = 32;

/// Line and column of offsets asked for in increasing order. Columns count bytes, as yaml-cpp's do.
class MarkCounter {
 public:
  explicit MarkCounter(std::string_view text) : text_(text) {}
  Mark at(std::size_t offset);

 private:
  std::string_view text_;
  std::size_t offset_ = 0;
  Mark mark_{1, 1};
};

/// 'text' in quotes, cut to a readable length without splitting a UTF-8 sequence.
std::string quoted_excerpt(std::string_view text);

/// Bytes of the well-formed UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text);

/// Reports text that no reader should see: too long, not UTF-8, control characters.
void check_text(std::string_view text, const Document& doc, Diagnostics& problems);

/// Texts that YAML reads as null when they are not quoted.
bool is_null_text(std::string_view text);

}  // namespace moecast
