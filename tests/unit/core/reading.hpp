#pragma once
/// What the tests of the readers ask of an answer.
#include <string>

#include "core/document.hpp"

namespace moecast {

inline std::string at(const Mark& mark) {
  return std::to_string(mark.line) + ":" + std::to_string(mark.column);
}

/// The first problem as a user reads it, or "accepted".
inline std::string first_problem_of(const std::string& text, const std::string& file) {
  const auto doc = parse_document(text, file);
  return doc.ok() ? "accepted" : to_string(doc.problems().front());
}

}  // namespace moecast
