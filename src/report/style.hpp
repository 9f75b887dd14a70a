#pragma once
/// Colours for a terminal; without `colour` every function gives its text back unchanged.
#include <string>
#include <string_view>

namespace moecast {

struct Style {
  bool colour = false;

  [[nodiscard]] std::string bold(std::string_view text) const { return wrap("1", text); }
  [[nodiscard]] std::string dim(std::string_view text) const { return wrap("2", text); }
  [[nodiscard]] std::string red(std::string_view text) const { return wrap("31", text); }
  [[nodiscard]] std::string green(std::string_view text) const { return wrap("32", text); }
  [[nodiscard]] std::string yellow(std::string_view text) const { return wrap("33", text); }

 private:
  [[nodiscard]] std::string wrap(std::string_view code, std::string_view text) const {
    if (!colour) return std::string(text);
    return std::string("\033[").append(code).append("m").append(text).append("\033[0m");
  }
};

}  // namespace moecast
