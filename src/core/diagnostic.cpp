#include <fmt/format.h>

#include "moecast/result.hpp"

namespace moecast {

std::string to_string(const Diagnostic& d) {
  std::string out = d.file;
  if (d.line > 0) out += fmt::format("{}{}", out.empty() ? "line " : ":", d.line);
  if (d.line > 0 && d.column > 0) out += fmt::format(":{}", d.column);
  for (const std::string& part : {d.key, d.message}) {
    if (part.empty()) continue;
    if (!out.empty()) out += ": ";
    out += part;
  }
  if (!d.hint.empty()) out += "; " + d.hint;
  return out;
}

}  // namespace moecast
