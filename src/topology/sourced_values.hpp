#pragma once
/// Reads hwdb values: {value: ..., kind: datasheet|measured|derived|assumed, source: "..."}.
#include <string>
#include <string_view>

#include "core/document.hpp"

namespace moecast {

class SourcedValues {
 public:
  SourcedValues(const Document& doc, const Node& section, std::string path, Diagnostics& problems);

  double positive(std::string_view key);
  double not_negative(std::string_view key);
  int count(std::string_view key);  ///< 1 to 100,000
  bool flag(std::string_view key);
  std::string text(std::string_view key);
  std::string plain_text(std::string_view key);  ///< a name; needs no source
  void finish() { section_.finish(); }

 private:
  const Node* fields_of(std::string_view key);  ///< nullptr when there is nothing to read
  template <typename T, typename Read>
  T read(std::string_view key, T fallback, Read read);
  double number(std::string_view key, bool zero_allowed);

  const Document& doc_;
  Diagnostics& problems_;
  MapReader section_;
};

}  // namespace moecast
