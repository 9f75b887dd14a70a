#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "report/layout_words.hpp"
#include "report/report.hpp"
#include "report/table.hpp"

namespace moecast {
namespace {

using Align = Table::Align;
constexpr int kWidth = 138;

std::string cut(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

std::vector<std::string> layout_cells(const Run& run) {
  const Layout& l = run.layout;
  const LayoutWords words = layout_words(run);
  std::vector<std::string> cells;
  for (const int size : {l.tp, l.pp, l.vpp, l.cp, l.ep, l.etp, l.micro_batch_size})
    cells.push_back(std::to_string(size));
  cells.insert(cells.end(), {words.dispatcher, words.overlap, cut(words.recompute, 22),
                             cut(words.graph, 20), words.precision});
  return cells;
}

std::vector<Table::Column> layout_columns(const std::string& first) {
  return {{first},
          {"TP"},
          {"PP"},
          {"VPP"},
          {"CP"},
          {"EP"},
          {"ETP"},
          {"mbs"},
          {"dispatcher", Align::left},
          {"overlap", Align::left},
          {"recompute", Align::left},
          {"graph", Align::left},
          {"precision", Align::left},
          {"step s"},
          {"TFLOPS"},
          {"GiB"},
          {"wall", Align::left}};
}

void add_layout(Table& table, const std::string& first, const RankedLayout& layout,
                bool strong = false) {
  std::vector<std::string> cells = layout_cells(layout.run);
  cells.insert(cells.begin(), first);
  cells.insert(cells.end(), {fmt::format("{:.4f}", layout.step_time.value),
                             fmt::format("{:.1f}", layout.tflops_per_gpu),
                             fmt::format("{:.1f}", in_gib(layout.peak)), to_string(layout.wall)});
  table.add(std::move(cells), strong);
}

bool is_tied(const RankedLayout& row, const SearchResult& r) {
  return row.slower_half_width && !row.told_apart_from(r.ranked.front());
}

std::string ties_text(const SearchResult& r) {
  double width = 0;
  for (const RankedLayout& row : r.ranked)
    if (is_tied(row, r)) width = std::max(width, std::expm1(*row.slower_half_width));
  if (width == 0) return "";
  return fmt::format(
      "  ~ not told apart from 1: a difference of up to {:.0f} % is inside the error bar\n",
      100 * width);
}

std::string ranked_text(const SearchResult& r, const Style& style) {
  Table table(layout_columns("rank"));
  for (std::size_t i = 0; i < r.ranked.size(); ++i) {
    const RankedLayout& row = r.ranked[i];
    add_layout(table, (is_tied(row, r) ? "~ " : "") + std::to_string(i + 1), row, i == 0);
  }
  std::string text = "\n" + style.bold("Ranked layouts") + "\n" + table.to_text(style) +
                     ties_text(r) + "\n" + style.bold("Why") + "\n";
  for (std::size_t i = 0; i < r.ranked.size(); ++i)
    text += fmt::format("  {:>3}  {}\n", i + 1, wrapped(r.ranked[i].why, kWidth, 7));
  return text;
}

std::string single_text(const std::string& title, const std::vector<RankedLayout>& layouts,
                        const Style& style) {
  Table table(layout_columns(""));
  for (const RankedLayout& layout : layouts) add_layout(table, "", layout);
  return "\n" + style.bold(title) + "\n" + table.to_text(style);
}

std::string rejected_text(const SearchResult& r, const Style& style) {
  if (r.rejected.empty()) return "";
  std::vector<std::pair<std::string, std::uint64_t>> reasons(r.rejected.begin(), r.rejected.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Table table({{"candidates"}, {"rejected by", Align::left}});
  for (const auto& [reason, count] : reasons)
    table.add({with_commas(static_cast<double>(count)), reason});
  return "\n" + style.bold("Rejected") + "\n" + table.to_text(style);
}

std::string nearest_text(const SearchResult& r, const Style& style) {
  if (r.nearest.run.gpus == 0) {
    const bool memory = r.rejected.count("memory") > 0;
    return "\n" +
           style.red(memory ? "Nothing fits, not even the model state" : "No layout is legal") +
           ": the reasons are counted below\n";
  }
  const Layout& l = r.nearest.run.layout;
  const LayoutWords words = layout_words(r.nearest.run);
  std::string text = fmt::format("\n{}: the nearest is {:.2f} GiB over what a GPU may reserve\n",
                                 style.red("Nothing fits"), in_gib(r.nearest.over));
  text += fmt::format(
      "  TP {}  PP {}  VPP {}  CP {}  EP {}  ETP {}  mbs {}  {}  recompute {}  offload {}  {}\n",
      l.tp, l.pp, l.vpp, l.cp, l.ep, l.etp, l.micro_batch_size, words.dispatcher, words.recompute,
      words.offload, words.precision);
  if (!r.nearest.change.empty())
    text += "  nearest change that would fit: " + r.nearest.change + "\n";
  return text;
}

std::string explanation_text(const SearchResult& r, const Style& style) {
  if (!r.explained) return "";
  return "\n" + style.bold("The layout asked about") +
         fmt::format(": {}\n  ", r.explained->verdict) + wrapped(r.explained->message, kWidth, 2) +
         "\n";
}

std::string space_text(const SearchResult& r) {
  const auto n = [](std::uint64_t count) { return with_commas(static_cast<double>(count)); };
  const double rate = r.elapsed_s > 0 ? static_cast<double>(r.candidates) / r.elapsed_s : 0;
  return fmt::format(
      "{} candidates, {} legal, {} evaluated, {} fit, {} simulated, {} pruned by a bound; {:.2f} "
      "s, {}/s\n",
      n(r.candidates), n(r.legal), n(r.evaluated), n(r.fit), n(r.simulated), n(r.pruned),
      r.elapsed_s, with_commas(rate));
}

}  // namespace

std::string search_text(const SearchRequest& request, const SearchResult& r, const Style& style) {
  const Run& base = request.base;
  std::string text =
      style.bold(fmt::format("{} on {} x {}", base.model, base.gpus, base.system)) +
      fmt::format(", sequence {}, global batch {}\n", base.seq_length, base.global_batch_size);
  if (!request.part.whole())
    text += fmt::format("part {} of {}\n", request.part.index, request.part.of);
  text += space_text(r);
  if (!r.complete) {
    text += style.red("Incomplete") +
            fmt::format(": interrupted after {:.1f} % of the space; the best so far:\n",
                        100 * r.scanned);
  }
  if (!r.any_fit)
    return text + nearest_text(r, style) + explanation_text(r, style) + rejected_text(r, style);
  text += ranked_text(r, style);
  text += single_text("First layout that fits, by the fit order", {r.first_fit}, style);
  if (!r.first_fit.why.empty()) text += "  " + wrapped(r.first_fit.why, kWidth, 2) + "\n";
  if (!r.pareto.empty())
    text += single_text("Pareto front: step time against memory", r.pareto, style);
  return text + explanation_text(r, style) + rejected_text(r, style);
}

}  // namespace moecast
