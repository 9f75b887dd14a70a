#pragma once
/// The project's own text files, for tests that read sources rather than run them.
#include <string>
#include <vector>

namespace moecast::test {

struct SourceFile {
  std::string path;  ///< relative to the repository, such as src/core/units.hpp
  std::vector<std::string> lines;
  [[nodiscard]] bool is_cpp() const;
};

/// Every text file below the repository but those of .git, build folders and caches, sorted by
/// path.
const std::vector<SourceFile>& source_tree();

}  // namespace moecast::test
