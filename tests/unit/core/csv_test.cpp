#include <random>

#include "catch.hpp"
#include "core/csv.hpp"

using namespace moecast;

TEST_CASE("a quoted cell may hold commas, doubled quotes and line breaks") {
  const auto table = parse_csv("a,b\n\"x, \"\"y\"\"\nz\",2\n3,4\n", "t.csv");
  REQUIRE(table.ok());
  REQUIRE(table.value().rows.size() == 2);
  CHECK(table.value().rows[0].cells == std::vector<std::string>{"x, \"y\"\nz", "2"});
  CHECK(table.value().rows[0].line == 2);
  CHECK(table.value().rows[1].line == 4);  // the record before it took two lines
}

TEST_CASE(
    "CRLF, a byte-order mark, blank lines and a missing last line feed read as the plain table") {
  const auto table = parse_csv("\xEF\xBB\xBFid,v\r\nr1,\r\n\r\n\"r2\",7", "t.csv");
  REQUIRE(table.ok());
  CHECK(table.value().header == std::vector<std::string>{"id", "v"});
  REQUIRE(table.value().rows.size() == 2);
  CHECK(table.value().rows[0].cells == std::vector<std::string>{"r1", ""});
  CHECK(table.value().rows[1].cells == std::vector<std::string>{"r2", "7"});
  CHECK(table.value().rows[1].line == 4);
}

TEST_CASE("every problem of a table is reported at once, with its line") {
  const auto table = parse_csv("id,v,v,\n1,2,3,4\n1,2\n1,2,x\"y,4\n", "t.csv", {"id", "model"});
  REQUIRE_FALSE(table.ok());
  std::vector<std::pair<int, std::string>> seen;
  for (const auto& p : table.problems()) seen.emplace_back(p.line, p.key);
  CHECK(seen == std::vector<std::pair<int, std::string>>{
                    {4, ""}, {1, "v"}, {1, ""}, {1, "model"}, {3, ""}});
}

TEST_CASE("a misspelt required column is named with its neighbour") {
  const auto table = parse_csv("modle\nx\n", "t.csv", {"model"});
  REQUIRE(table.problems().size() == 1);
  CHECK(table.problems()[0].hint.find("modle") != std::string::npos);
}

TEST_CASE(
    "an open quote, text after a closing quote, an empty file and a folder are problems, not "
    "crashes") {
  CHECK(parse_csv("a\n\"open\nmore", "t.csv").problems().at(0).line == 2);
  CHECK(parse_csv("a\n\"x\"y\n", "t.csv").problems().at(0).line == 2);
  CHECK(parse_csv("", "t.csv").problems().size() == 1);
  CHECK(parse_csv("\r\n\n", "t.csv").problems().size() == 1);
  CHECK_FALSE(read_csv("/").ok());
  CHECK_FALSE(read_csv("no-such-file.csv").ok());
}

TEST_CASE("what to_csv_line writes is read back, whatever the cells hold") {
  std::mt19937 random(20240817);
  const std::string alphabet = "a,\"\n\r;x ";
  for (int round = 0; round < 2000; ++round) {
    const std::size_t width = 1 + random() % 4;
    std::string text = width == 1   ? "h\n"
                       : width == 2 ? "h,i\n"
                       : width == 3 ? "h,i,j\n"
                                    : "h,i,j,k\n";
    std::vector<std::vector<std::string>> written;
    for (int r = 0; r < 3; ++r) {
      std::vector<std::string> cells(width);
      for (auto& cell : cells) {
        for (std::size_t n = random() % 5; n > 0; --n) cell += alphabet[random() % alphabet.size()];
      }
      if (width == 1 && cells[0].empty()) cells[0] = "x";  // an empty single cell is a blank line
      text += to_csv_line(cells);
      written.push_back(cells);
    }
    const auto table = parse_csv(text, "t.csv");
    CAPTURE(round, text);
    REQUIRE(table.ok());
    REQUIRE(table.value().rows.size() == 3);
    for (std::size_t r = 0; r < 3; ++r) CHECK(table.value().rows[r].cells == written[r]);
  }
}

TEST_CASE("random bytes never crash the reader and every problem has a line inside the text") {
  std::mt19937 random(7);
  const std::string alphabet("a,\"\n\r\0\xEF\xBB", 8);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (std::size_t n = random() % 40; n > 0; --n) text += alphabet[random() % alphabet.size()];
    const auto table = parse_csv(text, "t.csv");
    for (const auto& p : table.problems()) CHECK((p.line >= 1 && p.line <= 41));
    if (table.ok()) {
      for (const auto& row : table.value().rows)
        CHECK(row.cells.size() == table.value().header.size());
    }
  }
}
