/// docs/rules.md, written from the rule table.
#include <fmt/format.h>

#include "layout/rules.hpp"

namespace moecast {
namespace {

constexpr std::string_view kHead =
    "# Rules\n\n"
    "Generated from the rule table (`src/layout/rules*.cpp`); a test compares. What Megatron-Core "
    "and\n"
    "Megatron-Bridge refuse (error), change or complain about (warning), and what is worth knowing "
    "(info).\n"
    "*phase* `start` = refused before training starts, `runtime` = fails when training runs.\n"
    "`applies` empty = every launcher. Layout strings (`pipeline_model_parallel_layout`) are "
    "checked when\n"
    "the pipeline is planned (`megatron/core/transformer/pipeline_parallel_layer_layout.py`).\n";

std::string_view title(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "Errors";
    case Severity::warning:
      return "Warnings";
    case Severity::info:
      return "Notes";
  }
  return "";
}

std::string row(const Rule& rule) {
  std::string keys;
  for (std::string_view key : rule.keys)
    keys += fmt::format("{}`{}`", keys.empty() ? "" : " ", key);
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", rule.id, rule.condition, rule.fix,
                     rule.runtime ? "runtime" : "start", keys, rule.applies, rule.source);
}

}  // namespace

std::string rules_markdown() {
  std::string out(kHead);
  for (Severity severity : {Severity::error, Severity::warning, Severity::info}) {
    out += fmt::format(
        "\n## {}\n\n| rule | must hold | fix | phase | keys | applies | source |\n"
        "|---|---|---|---|---|---|---|\n",
        title(severity));
    for (const Rule& rule : rule_table()) {
      if (rule.severity == severity) out += row(rule);
    }
  }
  return out;
}

}  // namespace moecast
