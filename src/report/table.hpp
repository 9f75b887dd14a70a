#pragma once
/// A plain text table: columns as wide as their widest cell, numbers to the right, words to the
/// left.
#include <string>
#include <vector>

#include "report/style.hpp"

namespace moecast {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One row; missing cells are empty. A strong row is printed bold.
  void add(std::vector<std::string> cells, bool strong = false);
  /// A line of dashes under the rows so far.
  void add_line();
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] std::string to_text(const Style& style, int indent = 2) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    bool strong = false;
    bool line = false;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// "1,234,567"
std::string with_commas(double count);
/// "671.0 B", "37.6 M": parameter counts.
std::string short_count(double count);
/// "12.345 s", "812.3 ms", "45.1 us"
std::string short_seconds(double seconds);
/// Breaks text at spaces so that no line passes `width`; lines after the first start with `indent`
/// spaces.
std::string wrapped(const std::string& text, int width, int indent);

}  // namespace moecast
