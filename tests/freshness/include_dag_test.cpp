// The dependency direction of docs/architecture.md, read off the #include lines.
#include <map>
#include <optional>
#include <set>

#include "catch.hpp"
#include "freshness/source_tree.hpp"

using moecast::test::source_tree;
using moecast::test::SourceFile;

namespace {

using Folders = std::set<std::string>;

/// Folders of src/ whose headers a folder may include.
const std::map<std::string, Folders> kAllowed = {
    {"core", {"core"}},
    {"model", {"model", "core"}},
    {"topology", {"topology", "core"}},
    {"layout", {"layout", "model", "core"}},
    {"profile", {"profile", "core"}},
    {"calibrate", {"calibrate", "estimate", "layout", "topology", "core"}},
    {"estimate", {"estimate", "layout", "topology", "model", "core"}},
    {"search", {"search", "estimate", "layout", "topology", "model", "core"}},
    {"report", {"report", "search", "estimate", "layout", "topology", "model", "core", "profile"}},
    {"cli",
     {"cli", "report", "search", "estimate", "layout", "topology", "model", "core", "profile",
      "calibrate"}},
};

/// Public nouns (include/moecast) that a folder may know besides those of the folders above: rules
/// read a cluster's capabilities, and a cluster prices the layout's enums.
const std::map<std::string, Folders> kAlsoPublic = {{"topology", {"layout"}},
                                                    {"layout", {"topology"}}};

/// The folder that implements each public header.
const std::map<std::string, std::string> kOwner = {
    {"units", "core"},        {"result", "core"},        {"model_spec", "model"},
    {"model_io", "model"},    {"layout", "layout"},      {"run", "layout"},
    {"cluster", "topology"},  {"stack", "topology"},     {"calibration", "topology"},
    {"estimate", "estimate"}, {"evaluator", "estimate"}, {"search", "search"},
    {"validation", "report"}, {"samples", "calibrate"},  {"kernel", "estimate"},
    {"whatif", "search"},
};

const std::string kNoOwner =
    "public header without an owner in tests/freshness/include_dag_test.cpp";

/// The text between the quotes of an #include line.
std::optional<std::string> quoted_include(const std::string& line) {
  const size_t open = line.find('"');
  const size_t close = line.find('"', open + 1);
  if (!line.starts_with("#include") || close == std::string::npos) return std::nullopt;
  return line.substr(open + 1, close - open - 1);
}

/// The text between `prefix` and the next '/' or '.'.
std::string name_after(const std::string& path, size_t prefix) {
  return path.substr(prefix, path.find_first_of("/.", prefix) - prefix);
}

/// What is wrong with `header` included from src/<folder>; empty if it may be.
std::string objection(const std::string& folder, const std::string& header) {
  const auto allowed = kAllowed.find(folder);
  if (allowed == kAllowed.end()) return "folder src/" + folder + " is not in the DAG";
  if (header.find('/') == std::string::npos) return "";  // its own folder
  if (!header.starts_with("moecast/")) {
    const std::string target = name_after(header, 0);
    return allowed->second.contains(target) ? "" : folder + " must not know " + target;
  }
  const auto owner = kOwner.find(name_after(header, 8));
  if (owner == kOwner.end()) return kNoOwner;
  const auto extra = kAlsoPublic.find(folder);
  const bool is_allowed = allowed->second.contains(owner->second) ||
                          (extra != kAlsoPublic.end() && extra->second.contains(owner->second));
  return is_allowed ? "" : folder + " must not know " + owner->second;
}

std::string objections_of(const SourceFile& file) {
  std::string folder = name_after(file.path, 4);
  if (file.path.starts_with("include/moecast/")) {
    const auto owner = kOwner.find(name_after(file.path, 16));
    if (owner == kOwner.end()) return file.path + ": " + kNoOwner + '\n';
    folder = owner->second;
  }
  std::string result;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::optional<std::string> header = quoted_include(file.lines[i]);
    const std::string why = header ? objection(folder, *header) : "";
    if (!why.empty()) result += file.path + ":" + std::to_string(i + 1) + ": " + why + '\n';
  }
  return result;
}

}  // namespace

TEST_CASE("the include check refuses what points up the DAG and allows what points down") {
  CHECK(objection("core", "model/x.hpp") == "core must not know model");
  CHECK(objection("core", "moecast/search.hpp") == "core must not know search");
  CHECK(objection("profile", "estimate/x.hpp") == "profile must not know estimate");
  CHECK(objection("estimate", "moecast/cluster.hpp").empty());
  CHECK(objection("topology", "moecast/layout.hpp").empty());
  CHECK(objection("topology", "layout/knobs.hpp") == "topology must not know layout");
  CHECK(quoted_include("#include \"core/document.hpp\"  // why") == "core/document.hpp");
  CHECK_FALSE(quoted_include("#include <vector>"));
}

TEST_CASE("no source file includes against the direction of the architecture") {
  std::string objections;
  size_t files = 0;
  for (const SourceFile& file : source_tree()) {
    const bool is_ours = file.path.starts_with("src/") || file.path.starts_with("include/moecast/");
    if (!is_ours || !file.is_cpp()) continue;
    ++files;
    objections += objections_of(file);
  }
  CHECK(files > 10);
  INFO(objections);
  CHECK(objections.empty());
}
