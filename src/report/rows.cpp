#include "report/rows.hpp"

#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "core/csv.hpp"
#include "core/document.hpp"
#include "moecast/model_io.hpp"
#include "report/memory_figures.hpp"

namespace moecast {
namespace rows {

std::string cell(const MeasuredRow& row, const std::string& column) {
  const auto found = row.columns.find(column);
  return found == row.columns.end() ? "" : trimmed(found->second);
}

bool has_column(const MeasuredRow& row, const std::string& column) {
  return row.columns.count(column) == 1;
}

}  // namespace rows

namespace {

struct Filter {
  std::string column, value;
  bool equal = true;
};

std::vector<Filter> parse_filters(const std::vector<std::string>& where, const CsvTable& table,
                                  Diagnostics& problems) {
  std::vector<Filter> filters;
  for (const std::string& text : where) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.push_back({"--where", 0, 0, text, "is not column=value or column!=value", ""});
      continue;
    }
    const bool equal = text[equals - 1] != '!';
    const Filter filter{text.substr(0, equals - (equal ? 0 : 1)), text.substr(equals + 1), equal};
    if (table.column(filter.column) < 0) {
      problems.push_back({"--where", 0, 0, filter.column,
                          fmt::format("{} has no such column", table.file),
                          suggestion(filter.column, table.header)});
    }
    filters.push_back(filter);
  }
  return filters;
}

bool passes(const MeasuredRow& row, const std::vector<Filter>& filters) {
  for (const Filter& filter : filters) {
    if ((rows::cell(row, filter.column) == filter.value) != filter.equal) return false;
  }
  return true;
}

/// A measured figure: a number above 0, or nothing (then anything but an empty cell is a note).
std::optional<double> measured(MeasuredRow& row, const std::string& column) {
  const std::string text = rows::cell(row, column);
  const auto value = rows::number(text);
  if (value && *value > 0) return value;
  if (!text.empty())
    row.notes.push_back(fmt::format("{}: '{}' is not a number above 0 and left out", column, text));
  return std::nullopt;
}

MeasuredRow row_of(const CsvTable& table, const CsvRow& record) {
  MeasuredRow row;
  for (std::size_t i = 0; i < table.header.size(); ++i)
    row.columns[table.header[i]] = record.cells[i];
  row.id = rows::cell(row, "id");
  row.mem_basis = rows::cell(row, "mem_basis");
  row.tflops_per_gpu = measured(row, "tflops_per_gpu");
  row.step_time_s = measured(row, "step_time_s");
  row.peak_mem_gib = measured(row, "peak_mem_gib");
  read_memory_figures(row);
  return row;
}

/// Throughput that a row states in tokens, or by its step alone, in TFLOPS of the model.
void complete_throughput(MeasuredRow& row) {
  if (row.tflops_per_gpu || !row.run) return;
  const Run& run = *row.run;
  auto tokens = rows::number(rows::cell(row, "tokens_per_s_per_gpu"));
  if (!tokens && row.step_time_s) {
    tokens =
        static_cast<double>(run.global_batch_size) * run.seq_length / (*row.step_time_s * run.gpus);
  }
  if (!tokens || *tokens <= 0) return;
  if (rows::cell(row, "notes").find("job timed out") != std::string::npos) {
    row.notes.push_back("the job timed out: its few steps are not counted");
    return;
  }
  const auto model = load_model(run.model, run.model_overrides, run.base_dir);
  if (!model) return;
  row.tflops_per_gpu =
      *tokens * model_flops_per_token(model.value(), run.seq_length, run.layout.tp) / 1e12;
}

void check_ids(const CsvTable& table, Diagnostics& problems) {
  std::map<std::string, int> seen;
  const auto column = static_cast<std::size_t>(table.column("id"));
  for (const CsvRow& record : table.rows) {
    const std::string& id = record.cells[column];
    const auto [first, fresh] = seen.emplace(id, record.line);
    if (id.empty()) {
      problems.push_back({table.file, record.line, 0, "id", "the row has no id", ""});
    } else if (!fresh) {
      problems.push_back({table.file, record.line, 0, "id",
                          fmt::format("'{}' is already the row of line {}", id, first->second),
                          ""});
    }
  }
}

}  // namespace

Result<std::vector<MeasuredRow>> read_measured_rows(const std::string& path,
                                                    const std::vector<std::string>& where) {
  const auto table = read_csv(path, {"id", "model", "system", "num_gpus", "seq_len", "gbs"});
  if (!table) return table.problems();
  Diagnostics problems;
  const auto filters = parse_filters(where, table.value(), problems);
  check_ids(table.value(), problems);
  if (!problems.empty()) return problems;
  const std::string base_dir = std::filesystem::path(path).parent_path().string();
  std::vector<MeasuredRow> rows;
  for (const CsvRow& record : table.value().rows) {
    MeasuredRow row = row_of(table.value(), record);
    if (!passes(row, filters)) continue;
    rows::complete_from_recipe(row);
    rows::express(row, base_dir);
    complete_throughput(row);
    rows.push_back(std::move(row));
  }
  rows::read_allocator_groups(rows);
  read_first_step_sources(rows);
  return rows;
}

}  // namespace moecast
