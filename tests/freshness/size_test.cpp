// Budgets for a screen and a sitting; the sizes between goal and limit are printed, not failed.
#include <iostream>

#include "catch.hpp"
#include "freshness/source_tree.hpp"

using moecast::test::source_tree;
using moecast::test::SourceFile;

namespace {

constexpr size_t kFileGoal = 250, kFileLimit = 500;
constexpr size_t kFunctionGoal = 40, kFunctionLimit = 80;

struct Offender {
  std::string where;
  size_t lines = 0;
};

bool is_measured(const SourceFile& file) {
  return file.is_cpp() && (file.path.starts_with("src/") || file.path.starts_with("include/") ||
                           file.path.starts_with("tests/"));
}

/// Functions of a clang-formatted file: from a line in column 0 that opens a parameter list to the
/// "}" in column 0. Members of a class are not seen; clang-tidy's readability-function-size is.
std::vector<Offender> long_functions(const SourceFile& file, size_t goal) {
  std::vector<Offender> result;
  size_t start = 0;
  bool is_open = false;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    const bool at_margin = !line.empty() && line[0] != ' ' && line[0] != '#' && line[0] != '/';
    if (at_margin && line[0] != '}') {
      start = i;
      is_open = line.find('(') != std::string::npos;
    } else if (line == "}" && is_open) {
      const size_t length = i - start + 1;
      if (length > goal) result.push_back({file.path + ":" + std::to_string(start + 1), length});
      is_open = false;
    }
  }
  return result;
}

/// Prints all, returns those over the limit.
std::string report(const std::vector<Offender>& offenders, const std::string& what, size_t limit) {
  std::string over;
  for (const Offender& offender : offenders) {
    const std::string text = offender.where + ": " + std::to_string(offender.lines) + " lines\n";
    std::cout << what << ' ' << text;
    if (offender.lines > limit) over += text;
  }
  return over;
}

}  // namespace

TEST_CASE("a function is measured from its first line to its closing brace") {
  const SourceFile file{"src/a.cpp",
                        {"int f(int a,", "      int b) {", "  return a + b;", "}", "", "struct S {",
                         "  int x;", "};", "const int k[] = {", "  1,", "};"}};
  const std::vector<Offender> found = long_functions(file, 3);
  REQUIRE(found.size() == 1);
  CHECK(found[0].where == "src/a.cpp:1");
  CHECK(found[0].lines == 4);
  CHECK(long_functions(file, 4).empty());
}

TEST_CASE("no file is longer than 500 lines and no function longer than 80") {
  std::vector<Offender> files, functions;
  for (const SourceFile& file : source_tree()) {
    if (!is_measured(file)) continue;
    if (file.lines.size() > kFileGoal) files.push_back({file.path, file.lines.size()});
    for (const Offender& f : long_functions(file, kFunctionGoal)) functions.push_back(f);
  }
  const std::string long_files = report(files, "long file", kFileLimit);
  const std::string long_functions_found = report(functions, "long function", kFunctionLimit);
  INFO(long_files << long_functions_found);
  CHECK(long_files.empty());
  CHECK(long_functions_found.empty());
}
