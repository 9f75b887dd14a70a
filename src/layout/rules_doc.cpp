/// docs/rules.md, written from the rule table and the table of mutations.
#include <fmt/format.h>

#include "layout/mutations.hpp"
#include "layout/rules.hpp"
#include "layout/rules_disagreements.hpp"

namespace moecast {
namespace {

constexpr std::string_view kRulesHead =
    "# Rules\n\n"
    "Generated from the rule table (`src/layout/rules*.cpp`) and the mutations\n"
    "(`src/layout/mutations.cpp`); a test compares. What Megatron-Core, Megatron-LM and\n"
    "Megatron-Bridge refuse (error), complain about (warning), change (mutation), and what is "
    "worth\n"
    "knowing (info). Checked against Megatron-LM d98e8a64 and Megatron-Bridge 067f987d.\n\n"
    "*enforced by* megatron-core = every launcher; megatron-lm, megatron-bridge = that launcher "
    "only;\n"
    "moecast = nobody refuses it, moecast says it. *phase* config, init, build and first step = "
    "refused\n"
    "before training runs; runtime = fails later. *knobs* are Megatron's own names. A section in\n"
    "quotes names the page of the users' optimisation guides that states the rule.\n\n"
    "`moecast check --error \"text of a log\"` finds the rule behind a message.\n";

std::string_view severity_title(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "Errors";
    case Severity::warning:
      return "Warnings";
    case Severity::mutation:
      return "Mutations";
    case Severity::info:
      return "Notes";
  }
  return "";
}

std::string code_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += fmt::format("{}`{}`", out.empty() ? "" : " ", word);
  return out;
}

std::string rule_row(const Rule& rule) {
  std::string enforced(to_string(rule.enforcer));
  if (!rule.versions.empty()) enforced += fmt::format(" ({})", rule.versions);
  std::string source(rule.source);
  if (!rule.document.empty()) source += fmt::format("; \"{}\"", rule.document);
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", rule.id, rule.condition, rule.fix,
                     to_string(rule.phase), enforced, code_words(knobs_of(rule)), source);
}

std::string mutations_section() {
  std::string out =
      "\n## Mutations, in order\n\n"
      "| mutation | what | by | reads | writes | source |\n|---|---|---|---|---|---|\n";
  for (const Mutation& m : mutation_table()) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", m.id, m.what, to_string(m.enforcer),
                       code_words(words_of(m.reads)), code_words(words_of(m.writes)), m.source);
  }
  return out;
}

}  // namespace

std::string rules_markdown() {
  std::string out(kRulesHead);
  for (Severity severity : {Severity::error, Severity::warning, Severity::info}) {
    out += fmt::format(
        "\n## {}\n\n| rule | must hold | fix | phase | enforced by | knobs | source |\n"
        "|---|---|---|---|---|---|---|\n",
        severity_title(severity));
    for (const Rule& rule : rule_table()) {
      if (rule.severity == severity) out += rule_row(rule);
    }
    if (severity == Severity::warning) out += mutations_section();
  }
  return out + std::string(kDisagreements);
}

}  // namespace moecast
