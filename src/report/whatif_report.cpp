#include "report/whatif_report.hpp"

#include <fmt/format.h>

#include "core/csv.hpp"
#include "layout/run_file.hpp"
#include "report/layout_words.hpp"
#include "report/report.hpp"
#include "report/table.hpp"

namespace moecast {
namespace {

const RankMemory& fullest(const WhatIfPoint& p) {
  return p.estimate.ranks[static_cast<std::size_t>(p.estimate.largest_rank)];
}

/// What every point that runs says: the names are those of JSON and CSV.
struct Figure {
  const char* key;
  std::optional<double> (*of)(const WhatIfPoint&);
  const char* title = "";   ///< in the text table; empty = not there
  const char* format = "";  ///< of fmt
};

using Value = std::optional<double>;
const std::vector<Figure>& figures() {
  using P = const WhatIfPoint&;
  static const std::vector<Figure> table{
      {"step_time_s", [](P p) -> Value { return p.estimate.step_time.value; }, "step s", "{:.3f}"},
      {"step_time_s_p05", [](P p) -> Value { return p.estimate.step_time_p05.value; }},
      {"step_time_s_p95", [](P p) -> Value { return p.estimate.step_time_p95.value; }},
      {"tflops_per_gpu", [](P p) -> Value { return p.estimate.tflops_per_gpu; }, "TFLOPS",
       "{:.0f}"},
      {"mfu_pct", [](P p) -> Value { return p.estimate.mfu_pct; }},
      {"tokens_per_s", [](P p) -> Value { return p.tokens_per_s; }},
      {"peak_gib", [](P p) -> Value { return in_gib(fullest(p).peak); }, "GiB", "{:.1f}"},
      {"peak_reserved_gib", [](P p) -> Value { return in_gib(fullest(p).peak_reserved); }},
      {"steps", [](P p) -> Value { return p.steps; }},
      {"days", [](P p) -> Value { return p.days; }, "days", "{:.1f}"},
      {"days_p05", [](P p) -> Value { return p.days_p05; }, "from", "{:.1f}"},
      {"days_p95", [](P p) -> Value { return p.days_p95; }, "to", "{:.1f}"},
      {"gpu_hours", [](P p) -> Value { return p.gpu_hours; }, "GPU-hours", "{:.0f}"},
      {"cost", [](P p) -> Value { return p.cost; }, "cost", "{:.0f}"},
      {"speedup", [](P p) -> Value { return p.speedup; }, "speed-up", "{:.2f}"},
      {"efficiency", [](P p) -> Value { return p.efficiency; }, "efficiency", "{:.2f}"}};
  return table;
}

bool has_prices(const WhatIfRequest& r) { return !r.prices.empty(); }
bool is_shown(const Figure& f, const WhatIfRequest& r) {
  return *f.title != '\0' && (std::string_view(f.key) != "cost" || has_prices(r));
}

/// "pp4 vpp4 ep64 mbs1 hybridep": sizes above 1 and what costs or saves time.
std::string layout_label(const Run& run) {
  const Layout& l = run.layout;
  const LayoutWords words = layout_words(run);
  std::string text;
  for (const auto& [name, size] : {std::pair("tp", l.tp),
                                   {"pp", l.pp},
                                   {"vpp", l.vpp},
                                   {"cp", l.cp},
                                   {"ep", l.ep},
                                   {"etp", l.etp}})
    if (size > 1) text += fmt::format("{}{} ", name, size);
  text += fmt::format("mbs{}", l.micro_batch_size);
  if (l.ep > 1) text += " " + words.dispatcher;
  for (const auto& [name, word] : {std::pair("overlap", words.overlap),
                                   {"recompute", words.recompute},
                                   {"offload", words.offload}})
    if (word != "-") text += fmt::format(" {}:{}", name, word);
  return text;
}

Json values_json(const WhatIfRequest& r, const WhatIfPoint& p) {
  Json values = Json::object();
  for (std::size_t i = 0; i < r.axes.size(); ++i) values[r.axes[i].key] = p.values[i];
  return values;
}

Json point_json(const WhatIfRequest& r, const WhatIfPoint& p) {
  Json point{{"values", values_json(r, p)},
             {"runs", p.runs()},
             {"reason", p.runs() ? Json() : Json(p.reason)},
             {"gpus", p.run.gpus}};
  if (!p.runs()) return point;
  point["layout_from"] = p.started ? "run" : "search";
  for (const Figure& f : figures()) {
    const Value value = f.of(p);
    point[f.key] = value ? Json(*value) : Json();
  }
  point["wall"] = to_string(p.estimate.wall);
  point["run"] = run_to_json(p.run);
  return point;
}

Json index_or_null(const std::optional<std::size_t>& index) {
  return index ? Json(*index) : Json();
}

std::string leaf(const std::string& key) { return key.substr(key.rfind('.') + 1); }

std::string points_text(const WhatIfRequest& r, const WhatIfResult& result, const Style& style) {
  std::vector<Table::Column> columns;
  for (const WhatIfAxis& axis : r.axes) columns.push_back({leaf(axis.key)});
  for (const Figure& f : figures())
    if (is_shown(f, r)) columns.push_back({f.title});
  columns.push_back({"wall", Table::Align::left});
  columns.push_back({"layout", Table::Align::left});
  Table table(columns);
  for (std::size_t i = 0; i < result.points.size(); ++i) {
    const WhatIfPoint& p = result.points[i];
    std::vector<std::string> cells = p.values;
    for (const Figure& f : figures()) {
      const Value value = is_shown(f, r) && p.runs() ? f.of(p) : std::nullopt;
      if (is_shown(f, r))
        cells.push_back(value ? fmt::format(fmt::runtime(f.format), *value) : "-");
    }
    cells.push_back(p.runs() ? to_string(p.estimate.wall) : "-");
    cells.push_back(!p.runs() ? "cannot run, see below"
                              : (p.started ? "RUN's: " : "") + layout_label(p.run));
    table.add(std::move(cells), result.answer == i);
  }
  return table.to_text(style);
}

std::string reasons_text(const WhatIfResult& result, const Style& style) {
  std::string text;
  for (const WhatIfPoint& p : result.points) {
    if (!p.runs())
      text += fmt::format("  {}: {}\n", fmt::join(p.values, " "), wrapped(p.reason, 138, 6));
  }
  return text.empty() ? "" : "\n" + style.bold("Cannot run") + "\n" + text;
}

std::string answer_text(const WhatIfRequest& r, const WhatIfResult& result, const Style& style) {
  if (!r.days) return "";
  if (!result.answer)
    return "\n" + style.red(fmt::format("No point takes at most {:g} days", *r.days)) + "\n";
  const WhatIfPoint& p = result.points[*result.answer];
  return fmt::format("\n{}: {} GPUs, {:.1f} days ({:.1f} to {:.1f}){}\n",
                     style.bold(fmt::format("Fewest GPUs for {:g} days", *r.days)), p.run.gpus,
                     p.days, p.days_p05, p.days_p95,
                     p.days_p95 > *r.days ? "; the slow end of the interval is over" : "");
}

}  // namespace

std::string whatif_text(const WhatIfRequest& r, const WhatIfResult& result, const Style& style) {
  const Run& base = r.base.base;
  std::string text =
      style.bold(fmt::format("What if: {}, {} tokens", base.model, short_count(r.tokens))) +
      fmt::format("; {} point{}\n", result.asked, result.asked == 1 ? "" : "s");
  if (!result.complete()) {
    text += style.red("Incomplete") +
            fmt::format(": interrupted after {} points\n", result.points.size());
  }
  text += "\n" + points_text(r, result, style);
  if (result.reference) {
    text += fmt::format(
        "\nSpeed-up (tokens/s) and efficiency (tokens/s per GPU) are against the first point that "
        "runs; days from-to: 5 to 95 % of the interval\n");
  }
  return text + answer_text(r, result, style) + reasons_text(result, style);
}

Json whatif_json(const WhatIfRequest& r, const WhatIfResult& result) {
  Json axes = Json::array(), points = Json::array();
  for (const WhatIfAxis& axis : r.axes)
    axes.push_back({{"key", axis.key}, {"values", axis.values}});
  for (const WhatIfPoint& p : result.points) points.push_back(point_json(r, p));
  Json document{{"schema", "moecast/whatif@1"},
                {"complete", result.complete()},
                {"tokens", r.tokens},
                {"axes", axes},
                {"reference", index_or_null(result.reference)},
                {"points", points}};
  if (r.days) document["days"] = {{"wanted", *r.days}, {"point", index_or_null(result.answer)}};
  return document;
}

std::string whatif_csv(const WhatIfRequest& r, const WhatIfResult& result) {
  std::vector<std::string> header;
  for (const WhatIfAxis& axis : r.axes) header.push_back(axis.key);
  for (const char* name : {"runs", "reason", "gpus", "layout_from", "layout", "precision", "wall"})
    header.emplace_back(name);
  for (const Figure& f : figures()) header.emplace_back(f.key);
  std::string text = to_csv_line(header);
  for (const WhatIfPoint& p : result.points) {
    std::vector<std::string> cells = p.values;
    const auto when_it_runs = [&](const std::string& word) { return p.runs() ? word : ""; };
    cells.insert(cells.end(),
                 {p.runs() ? "true" : "false", p.reason, std::to_string(p.run.gpus),
                  when_it_runs(p.started ? "run" : "search"), when_it_runs(layout_label(p.run)),
                  when_it_runs(to_string(p.run.layout.precision)),
                  when_it_runs(to_string(p.estimate.wall))});
    for (const Figure& f : figures()) {
      const Value value = p.runs() ? f.of(p) : std::nullopt;
      cells.push_back(value ? fmt::format("{}", *value) : "");
    }
    text += to_csv_line(cells);
  }
  return text;
}

}  // namespace moecast
