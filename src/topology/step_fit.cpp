#include "topology/step_fit.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace moecast {
namespace {

const Parameter* find_parameter(const std::string& path) {
  const auto& table = parameter_table();
  const auto at =
      std::find_if(table.begin(), table.end(), [&](const Parameter& p) { return p.path == path; });
  return at == table.end() ? nullptr : &*at;
}

Diagnostic unknown_parameter(const Document& doc, Mark at, const std::string& path) {
  std::vector<std::string> names;
  for (const Parameter& p : parameter_table()) names.push_back(p.path);
  return doc.problem(at, path, "no such parameter", suggestion(path, names));
}

StepFit::Factor read_factor(const Document& doc, const Node& node, Diagnostics& problems) {
  StepFit::Factor f;
  if (!node.is_map()) {
    problems.push_back(doc.problem(node.mark, "fit.factors", "a factor is {scope, path, log, sd}"));
    return f;
  }
  MapReader reader(doc, node, "fit.factors", problems);
  f.scope = reader.required_text("scope");
  f.path = reader.required_text("path");
  f.log = reader.required_number("log");
  f.sd = reader.required_number("sd");
  reader.finish();
  if (find_parameter(f.path) == nullptr)
    problems.push_back(unknown_parameter(doc, node.mark, f.path));
  if (std::abs(f.log) > 3 || f.sd < 0 || f.sd > 3)
    problems.push_back(doc.problem(node.mark, "fit.factors", "log and sd are out of reason"));
  return f;
}

/// "0.1 -0.2 1": thousands of numbers as nodes of YAML would take longer than an estimate. Empty
/// when anything else is in it.
std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    double value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next < end && *next != ' ')) return {};
    numbers.push_back(value);
    at = next + (next < end ? 1 : 0);
  }
  return numbers;
}

/// A list, or its numbers in one text.
std::vector<double> read_row(const Document& doc, const Node& node, std::size_t length,
                             Diagnostics& problems) {
  std::vector<double> row;
  if (node.is_sequence()) {
    for (const Node& item : node.items) row.push_back(item.as_double().value_or(2));
  } else {
    row = numbers_of(node.scalar);
  }
  const bool right = std::all_of(row.begin(), row.end(), [](double v) { return std::abs(v) <= 1; });
  if (row.size() != length || !right) {
    problems.push_back(
        doc.problem(node.mark, "fit.correlation",
                    fmt::format("row {} must hold {} numbers from -1 to 1", length, length)));
    row.assign(length, 0);
  }
  return row;
}

std::vector<std::string> read_names(const Document& doc, const Node& node, Diagnostics& problems) {
  std::vector<std::string> names;
  for (const Node& item : node.items) {
    if (const auto text = item.as_string()) names.push_back(*text);
  }
  if (!node.is_sequence() || names.size() != node.items.size())
    problems.push_back(doc.problem(node.mark, "fit.domain", "must be lists of names"));
  return names;
}

/// Calls f(parameter, its map's reader, mark) for every entry that is a known parameter's map;
/// `shape`: what such a map holds, `section`: where it stands.
template <typename F>
void for_each_parameter(const Document& doc, const Node& node, const std::string& section,
                        const char* shape, Diagnostics& problems, F f) {
  for (const auto& [path, mark, leaf] : node.entries) {
    const Parameter* parameter = find_parameter(path);
    if (parameter == nullptr) {
      problems.push_back(unknown_parameter(doc, mark, path));
    } else if (!leaf.is_map()) {
      problems.push_back(doc.problem(mark, path, shape));
    } else {
      MapReader reader(doc, leaf, section + "." + path, problems);
      f(*parameter, reader, mark);
    }
  }
}

}  // namespace

std::map<std::string, ParameterValue> read_stack_parameters(const Document& doc, const Node& node,
                                                            Diagnostics& problems) {
  std::map<std::string, ParameterValue> values;
  const auto read = [&](const Parameter& parameter, MapReader& reader, Mark mark) {
    ParameterValue v;
    v.value = reader.required_number("value");
    v.sd = reader.number("sd", 0.2);
    v.source = reader.required_text("source");
    v.kind = reader.text("kind", "assumed");
    reader.finish();
    if (v.value < parameter.low || v.value > parameter.high) {
      problems.push_back(
          doc.problem(mark, parameter.path, "outside its physical bounds",
                      fmt::format("between {} and {}", parameter.low, parameter.high)));
    }
    values[parameter.path] = v;
  };
  for_each_parameter(doc, node, "parameters", "a parameter is {value, sd, source, kind}", problems,
                     read);
  return values;
}

std::vector<Deviation> read_deviations(const Document& doc, const Node& node,
                                       const std::string& stack, Diagnostics& problems) {
  std::vector<Deviation> list;
  const auto read = [&](const Parameter& parameter, MapReader& reader, Mark mark) {
    Deviation d{reader.text("scope", stack), parameter.path, reader.required_number("sd"),
                reader.required_text("source")};
    reader.finish();
    if (d.sd <= 0 || d.sd > 1) {
      problems.push_back(
          doc.problem(mark, parameter.path, "sd is of a log factor: above 0, at most 1"));
    }
    list.push_back(std::move(d));
  };
  for_each_parameter(doc, node, "deviations", "a deviation is {sd, source}", problems, read);
  return list;
}

StepFit read_step_fit(const Document& doc, const Node& node, Diagnostics& problems) {
  StepFit fit;
  MapReader reader(doc, node, "fit", problems);
  fit.rows = reader.required_integer("rows");
  fit.residual_sd = reader.required_number("residual_sd");
  fit.half_width = reader.required_number("half_width");
  fit.pair_sd = reader.required_number("pair_sd");
  reader.ignore("source");
  if (const Node* domain = reader.get("domain")) {
    for (const auto& [name, mark, list] : domain->entries)
      fit.domain[name] = read_names(doc, list, problems);
  }
  if (const Node* factors = reader.require("factors"))
    for (const Node& item : factors->items) fit.factors.push_back(read_factor(doc, item, problems));
  if (const Node* rows = reader.require("correlation")) {
    for (const Node& row : rows->items)
      fit.correlation.push_back(read_row(doc, row, fit.correlation.size() + 1, problems));
    if (fit.correlation.size() != fit.factors.size())
      problems.push_back(doc.problem(rows->mark, "fit.correlation", "one row for every factor"));
  }
  reader.finish();
  return fit;
}

bool in_scope(const System& system, const std::string& scope) {
  const char* generation = system.gpu.compute_capability < 10 ? "hopper" : "blackwell";
  const char* host = system.grace ? "grace" : "x86";
  return scope == generation || scope == host || scope == system.name;
}

bool factor_moves(const Stack& stack, const System& system, const Profile& profile,
                  const std::string& scope, const std::string& path) {
  const auto held = profile.values.find(path);
  if (held == profile.values.end()) return false;
  if (in_scope(system, scope)) return held->second.kind != "measured";
  return std::any_of(stack.deviations.begin(), stack.deviations.end(),
                     [&](const Deviation& d) { return d.scope == scope && d.path == path; });
}

void apply_stack(const Stack& stack, const System& system, Profile& profile, bool fitted) {
  for (const auto& [path, value] : stack.parameters) {
    find_parameter(path)->in(profile.calibration) = value.value;
    profile.values[path] = value;
  }
  if (!fitted) return;
  for (const StepFit::Factor& f : stack.fit.factors) {
    if (!factor_moves(stack, system, profile, f.scope, f.path)) continue;
    const auto held = profile.values.find(f.path);
    const Parameter& parameter = *find_parameter(f.path);
    double& value = parameter.in(profile.calibration);
    value = std::clamp(value * std::exp(f.log), parameter.low, parameter.high);
    held->second.value = value;
    held->second.sd = f.sd;
  }
}

}  // namespace moecast
