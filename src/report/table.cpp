#include "report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

namespace moecast {
namespace {

/// Code points of UTF-8 text, which is what a terminal column counts for the letters used here.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, Table::Align align) {
  const std::string gap(width - std::min(width, width_of(text)), ' ');
  return align == Table::Align::right ? gap + text : text + gap;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

void Table::add(std::vector<std::string> cells, bool strong) {
  cells.resize(columns_.size());
  rows_.push_back({std::move(cells), strong, false});
}

void Table::add_line() {
  rows_.push_back({std::vector<std::string>(columns_.size()), false, true});
}

std::string Table::to_text(const Style& style, int indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].title);
    for (const Row& row : rows_) width = std::max(width, width_of(row.cells[c]));
    widths.push_back(width);
  }
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  const auto line_of = [&](const auto& cell_at) {
    std::string line = margin;
    for (std::size_t c = 0; c < columns_.size(); ++c)
      line += (c ? "  " : "") + padded(cell_at(c), widths[c], columns_[c].align);
    return trimmed(line);
  };
  const std::size_t total = std::accumulate(widths.begin(), widths.end(), std::size_t{0}) +
                            2 * (columns_.empty() ? 0 : columns_.size() - 1);
  std::string text = style.dim(line_of([&](std::size_t c) { return columns_[c].title; })) + "\n";
  for (const Row& row : rows_) {
    if (row.line) {
      text += margin + style.dim(std::string(total, '-')) + "\n";
      continue;
    }
    const std::string line = line_of([&](std::size_t c) { return row.cells[c]; });
    text += (row.strong ? style.bold(line) : line) + "\n";
  }
  return text;
}

std::string with_commas(double count) {
  std::string digits = fmt::format("{:.0f}", count);
  const std::ptrdiff_t first = digits.front() == '-' ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string short_count(double count) {
  if (count >= 1e12) return fmt::format("{:.2f} T", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.1f} B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  return with_commas(count);
}

std::string short_seconds(double seconds) {
  const double size = std::fabs(seconds);
  if (size >= 1.0 || size == 0.0) return fmt::format("{:.3f} s", seconds);
  if (size >= 1e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string wrapped(const std::string& text, int width, int indent) {
  std::istringstream words(text);
  std::string out;
  std::size_t column = static_cast<std::size_t>(indent);
  for (std::string word; words >> word;) {
    const bool first = out.empty();
    if (!first && column + 1 + width_of(word) > static_cast<std::size_t>(width)) {
      out += "\n" + std::string(static_cast<std::size_t>(indent), ' ') + word;
      column = static_cast<std::size_t>(indent) + width_of(word);
    } else {
      out += (first ? "" : " ") + word;
      column += width_of(word) + (first ? 0 : 1);
    }
  }
  return out;
}

}  // namespace moecast
