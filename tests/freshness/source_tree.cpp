#include "freshness/source_tree.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "temp_dir.hpp"

namespace moecast::test {
namespace {
namespace fs = std::filesystem;

bool is_skipped_folder(const std::string& name) {
  return name == ".git" || name == ".cache" || name == "node_modules" || name.starts_with("build");
}

SourceFile load(const fs::path& path, const std::string& text) {
  SourceFile file{fs::relative(path, MOECAST_SOURCE_DIR).generic_string(), {}};
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) file.lines.push_back(line);
  return file;
}

std::vector<SourceFile> read_tree() {
  std::vector<SourceFile> files;
  for (auto entry = fs::recursive_directory_iterator(MOECAST_SOURCE_DIR);
       entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->is_directory() && is_skipped_folder(entry->path().filename().string())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && !entry->is_symlink()) {
      const std::string text = read_file(entry->path());
      const bool is_binary = text.find('\0') != std::string::npos;
      if (!is_binary) files.push_back(load(entry->path(), text));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

}  // namespace

bool SourceFile::is_cpp() const {
  return path.ends_with(".hpp") || path.ends_with(".cpp") || path.ends_with(".cu") ||
         path.ends_with(".cuh");
}

const std::vector<SourceFile>& source_tree() {
  static const std::vector<SourceFile> files = read_tree();
  return files;
}

}  // namespace moecast::test
