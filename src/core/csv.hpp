#pragma once
/// RFC 4180 tables: quotes, separators and line breaks inside quotes, CRLF, a byte-order mark. The
/// first record names the columns.
#include <string>
#include <string_view>
#include <vector>

#include "moecast/result.hpp"

namespace moecast {

struct CsvRow {
  int line = 0;  ///< 1-based line on which the record starts
  std::vector<std::string> cells;
};

struct CsvTable {
  std::string file;  ///< as the user wrote it
  std::vector<std::string> header;
  std::vector<CsvRow> rows;  ///< each as long as the header; blank lines are skipped
  /// Index of a column, or -1.
  [[nodiscard]] int column(std::string_view name) const;
};

/// Every ragged row, duplicate or empty column name, broken quote and missing required column is
/// reported at once.
Result<CsvTable> parse_csv(std::string_view text, const std::string& file_name,
                           const std::vector<std::string>& required = {});
Result<CsvTable> read_csv(const std::string& path, const std::vector<std::string>& required = {});

/// One record with its line feed, quoted where RFC 4180 asks for it.
std::string to_csv_line(const std::vector<std::string>& cells);

}  // namespace moecast
