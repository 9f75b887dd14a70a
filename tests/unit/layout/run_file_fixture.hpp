#pragma once
// What the tests of run files share.
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "catch.hpp"
#include "layout/run_file.hpp"

namespace moecast {

namespace fs = std::filesystem;

inline const std::string kMinimal =
    "schema: moecast/run@1\n"
    "model: deepseek-v3\n"
    "cluster: {system: gb200-nvl72, gpus: 256}\n"
    "train: {seq_length: 4096, global_batch_size: 4096}\n";

inline Result<Run> parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  auto doc = parse_document(text, "run.yaml");
  if (!doc.ok()) return doc.problems();
  return run_from_document(doc.value(), sets);
}

inline std::vector<std::string> lines(const Diagnostics& problems) {
  std::vector<std::string> out;
  for (const Diagnostic& problem : problems) out.push_back(to_string(problem));
  return out;
}

inline void says(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

inline Run minimal() { return parse(kMinimal).take(); }

/// A folder of its own that goes away with the test.
struct Folder {
  fs::path path;
  explicit Folder(const std::string& name)
      : path(fs::temp_directory_path() /
             fmt::format("moecast-{}-{}", name, std::random_device{}())) {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
  }
};

/// All problems, one a line.
inline std::string listed(const Diagnostics& problems) {
  return fmt::format("{}", fmt::join(lines(problems), "\n"));
}

}  // namespace moecast
