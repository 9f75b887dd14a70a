// What an estimate can draw beside its tables: the pipeline, and where one rank's memory goes.
#include <fmt/format.h>

#include "report/report.hpp"
#include "report/table.hpp"

namespace moecast {
namespace {

using Align = Table::Align;

void add_items(const MemoryItem& item, int depth, Table& table) {
  table.add({std::string(static_cast<std::size_t>(2 * depth), ' ') + item.name,
             item.bytes.value != 0 ? fmt::format("{:.3f}", in_gib(item.bytes)) : "",
             item.count > 0 ? fmt::format("{:g}", item.count) : "", item.formula},
            depth == 0);
  for (const MemoryItem& child : item.children) add_items(child, depth + 1, table);
}

/// "t*4" for runs that would not be read at a glance, else the letters themselves.
std::string layer_letters(std::size_t count) {
  return count > 6 ? fmt::format("t*{}", count) : std::string(count, 't');
}

std::string layer_ranges(const std::vector<int>& layers) {
  if (layers.empty()) return "-";
  return layers.size() == 1 ? std::to_string(layers.front())
                            : fmt::format("{}-{}", layers.front(), layers.back());
}

}  // namespace

std::string pipeline_drawing(const PipelinePlan& plan, const std::string& indent) {
  std::vector<Table::Column> columns{{"PP rank"}};
  for (int chunk = 0; chunk < plan.vpp; ++chunk)
    columns.push_back({fmt::format("chunk {}", chunk), Align::left});
  columns.push_back({"layers", Align::left});
  Table table(columns);
  for (int rank = 0; rank < plan.pp; ++rank) {
    std::vector<std::string> cells{std::to_string(rank)}, ranges;
    for (int chunk = 0; chunk < plan.vpp; ++chunk) {
      const Stage& stage = plan.at(rank, chunk);
      cells.push_back((stage.embedding ? "E" : "") + layer_letters(stage.layers.size()) +
                      (stage.mtp ? "m" : "") + (stage.loss ? "L" : ""));
      ranges.push_back(layer_ranges(stage.layers));
    }
    cells.push_back(fmt::to_string(fmt::join(ranges, ", ")));
    table.add(std::move(cells));
  }
  return table.to_text(Style{}, static_cast<int>(indent.size()));
}

std::string memory_detail_text(const RankMemory& rank, const Style& style) {
  Table table({{fmt::format("pipeline rank {}", rank.pp_rank), Align::left},
               {"GiB"},
               {"alive"},
               {"formula", Align::left}});
  add_items(rank.detail, 0, table);
  return "\n" + table.to_text(style);
}

}  // namespace moecast
