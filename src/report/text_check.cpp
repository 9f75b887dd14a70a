#include <fmt/format.h>

#include <algorithm>

#include "report/report.hpp"
#include "report/table.hpp"

namespace moecast {
namespace {

constexpr int kCheckWidth = 110;

std::string label(const Finding& f, const Style& style) {
  const std::string text = fmt::format("{}[{}]", to_string(f.severity), f.rule);
  switch (f.severity) {
    case Severity::error:
      return style.red(text);
    case Severity::warning:
      return style.yellow(text);
    case Severity::mutation:
    case Severity::info:
      break;
  }
  return style.dim(text);
}

}  // namespace

std::string check_text(const std::string& input, const Checked& checked, const Style& style) {
  std::string text;
  for (const Finding& f : checked.findings) {
    text += label(f, style) + (f.phase == Phase::runtime ? " (when training starts)" : "") + ": " +
            wrapped(f.message, kCheckWidth, 4) + "\n";
    if (!f.keys.empty()) text += "    keys: " + fmt::to_string(fmt::join(f.keys, ", ")) + "\n";
    if (!f.fix.empty()) text += "    fix: " + wrapped(f.fix, kCheckWidth, 9) + "\n";
    if (!f.applies.empty()) text += "    applies: " + f.applies + "\n";
  }
  for (const Finding& f : checked.mutations)
    text += label(f, style) + ": " + wrapped(f.message, kCheckWidth, 4) + "\n";
  if (checked.plan) text += "pipeline:\n" + pipeline_drawing(*checked.plan, "  ");
  const auto count = [&](Severity s) {
    return std::count_if(checked.findings.begin(), checked.findings.end(),
                         [&](const Finding& f) { return f.severity == s; });
  };
  const auto errors = count(Severity::error);
  return text + fmt::format("{}: {} ({} errors, {} warnings, {} notes) for {}\n", input,
                            errors ? style.red("illegal") : style.green("legal"), errors,
                            count(Severity::warning), count(Severity::info),
                            to_string(checked.flavour));
}

std::string diagnosis_text(const std::vector<Diagnosis>& found, const Style& style) {
  if (found.empty())
    return "no rule is near this text; give the message of the assertion, with its option names\n";
  std::string text;
  for (const Diagnosis& d : found) {
    text += style.red(d.rule.empty() ? "symptom" : d.rule) + ": " +
            wrapped(d.cause, kCheckWidth, 4) + "\n    check: " + wrapped(d.check, kCheckWidth, 11) +
            "\n    fix: " + wrapped(d.fix, kCheckWidth, 9) + "\n    source: " + d.source + "\n";
  }
  return text;
}

}  // namespace moecast
