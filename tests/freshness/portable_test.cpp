// The repository stands alone: nothing in it names a folder of the machine it was written on.
#include <cctype>

#include "catch.hpp"
#include "freshness/source_tree.hpp"

using moecast::test::source_tree;
using moecast::test::SourceFile;

namespace {

/// Written in two halves, so that this file does not accuse itself.
const std::vector<std::string> kForeign = {
    std::string("/wo") + "rk/",       std::string("/ho") + "me/",
    std::string(".lib") + "rary",     std::string("shared/") + "truth",
    std::string("shared/") + "facts", std::string("../sha") + "red",
    std::string("memory") + ".md",    std::string("flops") + ".md",
    std::string("interface") + ".md", std::string("memory_") + "peaks"};

/// An absolute path starts a word: the same letters inside a longer word are not meant.
bool starts_word(const std::string& line, size_t at) {
  if (at == 0) return true;
  const unsigned char before = static_cast<unsigned char>(line[at - 1]);
  return std::isalnum(before) == 0 && before != '.' && before != '}' && before != '_' &&
         before != '-';
}

bool names_foreign_path(const std::string& line) {
  for (const std::string& pattern : kForeign) {
    for (size_t at = line.find(pattern); at != std::string::npos; at = line.find(pattern, at + 1)) {
      if (pattern[0] != '/' || starts_word(line, at)) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("a path of the developer's machine is recognised, a URL's is not") {
  CHECK(names_foreign_path("see " + kForeign[0] + "x"));
  CHECK(names_foreign_path("\"" + kForeign[1] + "me/x\""));
  CHECK(names_foreign_path("cp " + kForeign[3] + "/a.csv ."));
  CHECK_FALSE(names_foreign_path("https://example.org" + kForeign[0] + "paper"));
  CHECK_FALSE(names_foreign_path("src/network/framework/x"));
}

TEST_CASE("no file names a path of the machine it was written on") {
  std::string found;
  for (const SourceFile& file : source_tree()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      if (!names_foreign_path(file.lines[i])) continue;
      found += file.path + ":" + std::to_string(i + 1) + ": " + file.lines[i] + '\n';
    }
  }
  INFO(found);
  CHECK(found.empty());
}
