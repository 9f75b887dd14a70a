#include "core/csv.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "core/document.hpp"

namespace moecast {
namespace {

constexpr std::uintmax_t kLargestFile = 256u << 20;

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& file, Diagnostics& problems)
      : text_(text), file_(file), problems_(problems) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") text_.remove_prefix(3);
  }

  std::vector<CsvRow> records() {
    std::vector<CsvRow> rows;
    while (at_ < text_.size()) {
      CsvRow row = record();
      const bool blank = row.cells.size() == 1 && row.cells.front().empty();
      if (!blank) rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  CsvRow record() {
    CsvRow row{line_, {}};
    do {
      row.cells.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted_cell() : plain_cell());
    } while (take(','));
    take('\r');
    if (take('\n')) ++line_;
    return row;
  }

  std::string plain_cell() {
    const std::size_t start = at_;
    at_ = std::min(text_.size(), text_.find_first_of(",\n", at_));
    std::string_view cell = text_.substr(start, at_ - start);
    if (!cell.empty() && cell.back() == '\r' && !(at_ < text_.size() && text_[at_] == ','))
      cell.remove_suffix(1);
    if (cell.find('"') != std::string_view::npos) {
      complain(line_, "a quote inside an unquoted cell",
               "put the whole cell in quotes and double the quotes inside it");
    }
    return std::string(cell);
  }

  std::string quoted_cell() {
    const int start_line = line_;
    std::string cell;
    ++at_;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        if (at_ + 1 == text_.size() || text_[at_ + 1] != '"') break;
        ++at_;
      } else if (text_[at_] == '\n') {
        ++line_;
      }
      cell += text_[at_];
    }
    if (!take('"')) {
      complain(start_line, "a quote is opened and never closed", "");
    } else if (const std::string rest = plain_cell(); !rest.empty()) {
      complain(line_, fmt::format("'{}' after a closing quote", rest),
               "double the quotes inside a quoted cell");
    }
    return cell;
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void complain(int line, std::string message, std::string hint) {
    problems_.push_back({file_, line, 0, "", std::move(message), std::move(hint)});
  }

  std::string_view text_;
  const std::string& file_;
  Diagnostics& problems_;
  std::size_t at_ = 0;
  int line_ = 1;
};

void check_header(const CsvTable& table, int line, const std::vector<std::string>& required,
                  Diagnostics& problems) {
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    const std::string& name = table.header[i];
    if (name.empty()) {
      problems.push_back(
          {table.file, line, 0, "", fmt::format("column {} has no name", i + 1), ""});
    } else if (table.column(name) != static_cast<int>(i)) {
      problems.push_back({table.file, line, 0, name, "the column is there twice", ""});
    }
  }
  for (const std::string& name : required) {
    if (table.column(name) >= 0) continue;
    problems.push_back({table.file, line, 0, name, "the column is required and missing",
                        suggestion(name, table.header)});
  }
}

}  // namespace

int CsvTable::column(std::string_view name) const {
  const auto found = std::find(header.begin(), header.end(), name);
  return found == header.end() ? -1 : static_cast<int>(found - header.begin());
}

Result<CsvTable> parse_csv(std::string_view text, const std::string& file_name,
                           const std::vector<std::string>& required) {
  Diagnostics problems;
  CsvTable table{file_name, {}, CsvParser(text, file_name, problems).records()};
  if (table.rows.empty())
    return Diagnostic{file_name, 1, 0, "", "the table is empty: no line with column names", ""};
  table.header = std::move(table.rows.front().cells);
  check_header(table, table.rows.front().line, required, problems);
  table.rows.erase(table.rows.begin());
  for (const CsvRow& row : table.rows) {
    if (row.cells.size() == table.header.size()) continue;
    problems.push_back({file_name, row.line, 0, "",
                        fmt::format("{} cells, but the header names {} columns", row.cells.size(),
                                    table.header.size()),
                        "quote cells that hold commas"});
  }
  if (!problems.empty()) return problems;
  return table;
}

Result<CsvTable> read_csv(const std::string& path, const std::vector<std::string>& required) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  std::ifstream in(path, std::ios::binary);
  if (!regular || !in)
    return Diagnostic{path, 0, 0, "", "the file cannot be read", "give a CSV file"};
  if (std::filesystem::file_size(path, error) > kLargestFile)
    return Diagnostic{path, 0, 0, "", "larger than 256 MiB", ""};
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return parse_csv(text, path, required);
}

std::string to_csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    if (cells[i].find_first_of(",\"\r\n") == std::string::npos &&
        !(cells.size() == 1 && cells[i].empty())) {
      line += cells[i];
      continue;
    }
    line += '"';
    for (const char c : cells[i]) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

}  // namespace moecast
