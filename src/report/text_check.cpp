#include <fmt/format.h>

#include <algorithm>

#include "report/report.hpp"
#include "report/table.hpp"

namespace moecast {
namespace {

constexpr int kWidth = 110;

std::string label(const Finding& f, const Style& style) {
  const std::string text = fmt::format("{}[{}]", to_string(f.severity), f.rule);
  switch (f.severity) {
    case Severity::error:
      return style.red(text);
    case Severity::warning:
      return style.yellow(text);
    case Severity::info:
      break;
  }
  return style.dim(text);
}

}  // namespace

std::string check_text(const std::string& input, const std::vector<Finding>& findings,
                       const Style& style) {
  std::string text;
  for (const Finding& f : findings) {
    text += label(f, style) + (f.runtime ? " (when training starts)" : "") + ": " +
            wrapped(f.message, kWidth, 4) + "\n";
    if (!f.keys.empty()) text += "    keys: " + fmt::to_string(fmt::join(f.keys, ", ")) + "\n";
    if (!f.fix.empty()) text += "    fix: " + wrapped(f.fix, kWidth, 9) + "\n";
    if (!f.applies.empty()) text += "    applies: " + f.applies + "\n";
  }
  const auto count = [&](Severity s) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& f) { return f.severity == s; });
  };
  const auto errors = count(Severity::error);
  return text + fmt::format("{}: {} ({} errors, {} warnings, {} notes)\n", input,
                            errors ? style.red("illegal") : style.green("legal"), errors,
                            count(Severity::warning), count(Severity::info));
}

}  // namespace moecast
