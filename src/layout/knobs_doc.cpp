// docs/knobs.md, written from the knob table.
#include <fmt/format.h>

#include "layout/knobs.hpp"

namespace moecast {
namespace {

constexpr std::string_view kHead =
    "# Knobs\n\n"
    "Generated from the knob table (`src/layout/knobs*.cpp`); a test compares. Every key of a run "
    "file\n"
    "(`schema: moecast/run@1`), in its order. A key may be written by its short name, and by "
    "Megatron's\n"
    "name where the values are the same; `--set` takes `section.key=value` or the short name "
    "alone.\n"
    "An empty default means that the key must be given. *\\** = the launcher spells the value "
    "differently.\n";

/// A | within a cell would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

std::string code(std::string_view text) {
  return text.empty() ? "" : fmt::format("`{}`", cell(text));
}

std::string row(const Knob& knob) {
  const std::string_view mark = knob.translated ? " \\*" : "";
  auto launcher = [&](std::string_view name) {
    return name.empty() ? std::string() : fmt::format("{}{}", code(name), mark);
  };
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", code(knob.leaf()),
                     code(knob.short_name), code(knob.domain), code(knob.default_text),
                     launcher(knob.megatron_flag), launcher(knob.bridge_key), cell(knob.help));
}

}  // namespace

std::string knobs_markdown() {
  std::string out(kHead);
  std::string_view last;
  for (const Knob& knob : knob_table()) {
    const std::string_view title = knob.section().empty() ? knob.leaf() : knob.section();
    if (title != last) {
      out += fmt::format(
          "\n## {}\n\n| key | short | value | default | Megatron-LM | Megatron-Bridge "
          "| meaning |\n|---|---|---|---|---|---|---|\n",
          title);
    }
    out += row(knob);
    last = title;
  }
  return out;
}

}  // namespace moecast
