#include <fmt/format.h>

#include "calibrate/steps/step_fit.hpp"

namespace moecast {

std::string stack_text(const StepFit& fit, const std::string& name, const std::string& base,
                       const std::string& source) {
  std::string out = fmt::format(
      "schema: moecast/stack@1\nname: \"{}\"\nbase: \"{}\"\nfit:\n  source: \"{}\"\n  rows: {}\n"
      "  residual_sd: {:.4f}\n  half_width: {:.3f}\n  pair_sd: {:.4f}\n  domain:\n",
      name, base, source, fit.rows, fit.residual_sd, fit.half_width, fit.pair_sd);
  for (const auto& [knob, names] : fit.domain)
    out += fmt::format("    {}: [{}]\n", knob, fmt::join(names, ", "));
  out += "  factors:  # the profile's value times exp(log), on the systems in scope\n";
  for (const StepFit::Factor& f : fit.factors) {
    out += fmt::format("    - {{scope: {}, path: {}, log: {:.4f}, sd: {:.4f}}}\n", f.scope, f.path,
                       f.log, f.sd);
  }
  out += "  correlation:\n";
  for (const auto& row : fit.correlation) {
    out += "    - \"";
    for (std::size_t i = 0; i < row.size(); ++i)
      out += fmt::format("{}{:.3g}", i == 0 ? "" : " ", i + 1 == row.size() ? 1 : row[i]);
    out += "\"\n";
  }
  return out;
}

}  // namespace moecast
