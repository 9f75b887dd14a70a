#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/report.hpp"
#include "report/table.hpp"

namespace moecast {
namespace {

using Align = Table::Align;

std::string number(const Json& tree, const char* key, const char* format = "{:.1f}") {
  const auto found = tree.is_object() ? tree.find(key) : tree.end();
  if (found == tree.end() || !found->is_number()) return "-";
  return fmt::format(fmt::runtime(format), found->get<double>());
}

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f}", *value) : "-";
}

Json child(const Json& tree, const char* key) {
  return tree.is_object() ? tree.value(key, Json::object()) : Json::object();
}

std::string summary_text(const Json& summary, const Style& style) {
  const Json memory = child(summary, "memory");
  return style.bold(fmt::format("MAPE {} %", number(summary, "mape_pct"))) +
         fmt::format(
             " over {} rows; median {} %, p90 {} %, bias {} %, Spearman {}\nmemory: MAPE {} % over "
             "{} rows\n",
             number(summary, "n", "{:.0f}"), number(summary, "median_ape_pct"),
             number(summary, "p90_ape_pct"), number(summary, "bias_pct"),
             number(summary, "spearman", "{:.3f}"), number(memory, "mape_pct", "{:.2f}"),
             number(memory, "n", "{:.0f}"));
}

/// What rows say about memory besides their peak, one line each.
std::string memory_text(const Json& summary) {
  const Json memory = child(summary, "memory"), more = child(memory, "more");
  const int count_of_peaks = memory.value("n", 0);
  const auto errors = [&](const char* key, const char* name) {
    const Json part = child(more, key);
    if (part.value("n", 0) == 0) return std::string();
    return fmt::format("{}: MAPE {} %, worst {} % over {} rows\n", name,
                       number(part, "mape_pct", "{:.2f}"), number(part, "max_ape_pct", "{:.2f}"),
                       number(part, "n", "{:.0f}"));
  };
  const auto score = [](const Json& part, const char* name) {
    if (part.value("n", 0) == 0) return std::string();
    return fmt::format("{}: {} of {}\n", name, part.value("right", 0), part.value("n", 0));
  };
  const bool some_not_forecast = child(more, "peak").value("n", 0) != count_of_peaks;
  return (some_not_forecast ? errors("peak", "memory of the rows forecast") : "") +
         errors("at_rest", "memory at rest") + errors("params_per_rank", "parameters per rank") +
         errors("reserved", "memory reserved") +
         score(child(more, "ran_and_fits"), "rows that ran and are forecast to fit") +
         score(child(summary, "oom"), "rows out of memory and forecast not to fit") +
         score(child(more, "ab_deltas"), "one-knob memory changes within 3 GiB or 30 %");
}

std::string by_text(const std::string& title, const Json& parts, const Style& style) {
  if (!parts.is_object() || parts.empty()) return "";
  Table table({{title, Align::left}, {"rows"}, {"MAPE %"}, {"median %"}, {"bias %"}});
  for (const auto& [name, part] : parts.items()) {
    table.add(
        {name, number(part, "n", "{:.0f}"),
         part.is_number() ? fmt::format("{:.1f}", part.get<double>()) : number(part, "mape_pct"),
         number(part, "median_ape_pct"), number(part, "bias_pct")});
  }
  return "\n" + table.to_text(style);
}

/// A row that was not forecast is the worst there is.
double badness(const ValidatedRow& row) {
  if (row.error_pct) return std::fabs(*row.error_pct);
  return row.status == "ok" ? -1.0 : 1e9;
}

std::string worst_text(const std::vector<ValidatedRow>& rows, const Style& style) {
  std::vector<const ValidatedRow*> order;
  for (const ValidatedRow& row : rows)
    if (badness(row) >= 0) order.push_back(&row);
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return badness(*a) > badness(*b); });
  constexpr std::size_t kShown = 15;
  if (order.size() > kShown) order.resize(kShown);
  if (order.empty()) return "";
  Table table({{"worst rows", Align::left},
               {"status", Align::left},
               {"forecast"},
               {"measured"},
               {"error %"},
               {"GiB"},
               {"measured"},
               {"error %"},
               {"", Align::left}});
  for (const ValidatedRow* row : order) {
    table.add({row->id, row->status, number(row->predicted_tflops_per_gpu),
               number(row->measured_tflops_per_gpu), number(row->error_pct),
               number(row->predicted_peak_gib), number(row->measured_peak_gib),
               number(row->memory_error_pct), row->detail.substr(0, 60)});
  }
  return "\n" + table.to_text(style);
}

std::string pair_text(const Json& groups, const Style& style) {
  Table table({{"A/B group", Align::left},
               {"a", Align::left},
               {"b", Align::left},
               {"measured"},
               {"forecast"},
               {"sign", Align::left}});
  int right = 0, all = 0;
  for (const Json& group : groups) {
    for (const Json& pair : group.value("pairs", Json::array())) {
      const Json sign =
          pair.value("sign_right", Json());  // null: too small an effect to have a sign
      all += sign.is_boolean();
      right += sign == Json(true);
      table.add({group.value("ab_group", ""), pair.value("a", ""), pair.value("b", ""),
                 number(pair, "measured_ratio", "{:.3f}"),
                 number(pair, "predicted_ratio", "{:.3f}"),
                 sign.is_null()       ? "-"
                 : sign == Json(true) ? "right"
                                      : "WRONG"});
    }
  }
  if (table.empty()) return "";
  return fmt::format("\n{} of {} one-knob changes have the right sign\n", right, all) +
         table.to_text(style);
}

}  // namespace

namespace {

std::string cross_validation_text(const Json& cross, const Style& style) {
  if (!cross.is_object()) return "";
  const auto line = [](const char* name, const Json& part) {
    return fmt::format("{:<24} MAPE {} %, median {} %, p90 {} %, bias {} %\n", name,
                       number(part, "mape_pct"), number(part, "median_ape_pct"),
                       number(part, "p90_ape_pct"), number(part, "bias_pct"));
  };
  std::string out =
      "\n" + style.bold(line("left out (model, system)", cross)) +
      line("left out release", child(cross, "leave_one_release_out")) +
      line("in sample", child(cross, "in_sample")) +
      fmt::format(
          "{} fitted parameters; 90 % intervals hold {} % of left-out rows; rank "
          "correlation within systems {}; {} of {} one-knob changes have the right sign\n",
          cross.value("fitted_parameters", 0), number(cross, "interval_coverage_pct"),
          number(cross, "spearman_within_system", "{:.3f}"), child(cross, "ab").value("right", 0),
          child(cross, "ab").value("n", 0));
  const Json by = child(cross, "by");
  for (const auto& [column, parts] : by.items()) {
    Table table({{"left out, by " + column, Align::left},
                 {"rows"},
                 {"MAPE %"},
                 {"median %"},
                 {"bias %"},
                 {"in sample %"},
                 {"rank corr."}});
    for (const auto& [name, part] : parts.items()) {
      table.add({name, number(part, "n", "{:.0f}"), number(part, "mape_pct"),
                 number(part, "median_ape_pct"), number(part, "bias_pct"),
                 number(part, "in_sample_mape_pct"), number(part, "spearman", "{:.3f}")});
    }
    out += "\n" + table.to_text(style);
  }
  return out;
}

std::string kernel_text(const Json& classes, const Style& style) {
  if (!classes.is_object()) return "";
  Table table({{"kernel class", Align::left}, {"steps"}, {"MAPE %"}, {"p90 %"}, {"bias %"}});
  for (const auto& [name, part] : classes.items()) {
    table.add({name, number(part, "n", "{:.0f}"), number(part, "mape_pct"),
               number(part, "p90_ape_pct"), number(part, "bias_pct")});
  }
  return "\n" + table.to_text(style);
}

}  // namespace

std::string validation_text(const Validation& v, const Style& style) {
  const Json by = child(v.summary, "by");
  return summary_text(v.summary, style) + memory_text(v.summary) +
         by_text("system", child(by, "system"), style) +
         by_text("model", child(by, "model"), style) +
         by_text("precision", child(by, "precision"), style) + worst_text(v.rows, style) +
         pair_text(v.groups, style) + cross_validation_text(v.cross_validation, style) +
         kernel_text(v.kernel_classes, style);
}

}  // namespace moecast
