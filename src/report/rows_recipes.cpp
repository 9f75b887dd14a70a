/// What a row leaves empty, the recipe that it ran states: hwdb/measured/recipe_settings.csv.
#include <algorithm>

#include <fmt/format.h>

#include "core/csv.hpp"
#include "core/document.hpp"
#include "report/rows.hpp"
#include "report/rows_inputs.hpp"

namespace moecast::rows {
namespace {

const std::vector<std::string> kKeys = {"recipe", "release", "model", "system", "precision"};

const Result<CsvTable>& recipes() {
  return read_once("recipe_settings", [] {
    std::vector<std::string> required = kKeys;
    required.insert(required.end(), {"features", "environment", "source"});
    return read_csv((data_dir() / "hwdb/measured/recipe_settings.csv").string(), required);
  });
}

const std::string& of(const CsvTable& table, const CsvRow& recipe, const std::string& column) {
  return recipe.cells[static_cast<std::size_t>(table.column(column))];
}

/// Rows name their recipe in words: "...; recipe=NAME; ...".
bool names_recipe(const MeasuredRow& row, const std::string& name) {
  const std::vector<std::string> words = split(cell(row, "notes"), ';');
  return std::find(words.begin(), words.end(), "recipe=" + name) != words.end();
}

/// An empty key stands for any; "Megatron-Bridge" for its releases and branches.
bool is_of(const CsvTable& table, const CsvRow& recipe, const MeasuredRow& row) {
  for (const std::string& key : kKeys) {
    const std::string& asked = of(table, recipe, key);
    if (asked.empty()) continue;
    const std::string has = cell(row, key);
    const bool alike = key == "recipe"              ? names_recipe(row, asked)
                       : asked == "Megatron-Bridge" ? bridge_release(has)
                                                    : asked == has;
    if (!alike) return false;
  }
  return true;
}

/// Features and environment variables are lists: the row's own stand, and others are added.
bool is_list(const std::string& column) { return column == "features" || column == "notes"; }

/// Not where the file lacks the column: then the default is meant.
void fill(MeasuredRow& row, const std::string& column, const std::string& settings,
          std::vector<std::string>& filled) {
  if (!has_column(row, column)) return;
  std::string& own = row.columns[column];
  if (is_list(column)) {
    const std::string stated = own;
    for (const std::string& item : split(settings, ';')) {
      if (stated.find(item.substr(0, item.find('='))) != std::string::npos) continue;
      own += (own.empty() ? "" : "; ") + item;
      filled.push_back(item);
    }
  } else if (trimmed(own).empty()) {
    own = settings;
    filled.push_back(fmt::format("{}={}", column, settings));
  }
}

}  // namespace

void complete_from_recipe(MeasuredRow& row) {
  if (cell(row, "task") != "pretrain" || !recipes()) return;
  const CsvTable& table = recipes().value();
  for (const CsvRow& recipe : table.rows) {
    if (!is_of(table, recipe, row)) continue;
    std::vector<std::string> filled;
    for (const std::string& column : table.header) {
      const std::string& settings = of(table, recipe, column);
      if (settings.empty() || column == "source" ||
          std::find(kKeys.begin(), kKeys.end(), column) != kKeys.end())
        continue;
      fill(row, column == "environment" ? "notes" : column, settings, filled);
    }
    if (!filled.empty()) {
      row.notes.push_back(fmt::format("not stated, so as its recipe has it ({}): {}",
                                      of(table, recipe, "source"), fmt::join(filled, ", ")));
    }
    return;
  }
}

}  // namespace moecast::rows
