#include "topology/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "core/document.hpp"
#include "topology/profile.hpp"
#include "topology/sourced_values.hpp"
#include "topology/system_figures.hpp"

namespace moecast {
namespace {

namespace fs = std::filesystem;

fs::path systems_dir() { return data_dir() / "hwdb" / "systems"; }

/// The numbers of a section, by the table.
void read_figures(SourcedValues& values, std::string_view section, System& s) {
  using Kind = SystemFigure::Kind;
  for (const SystemFigure& f : system_figures()) {
    if (f.section != section) continue;
    if (f.kind == Kind::count) {
      f.whole(s) = values.count(f.key);
    } else {
      f.value(s) =
          f.unit * (f.kind == Kind::positive ? values.positive(f.key) : values.not_negative(f.key));
    }
  }
}

void read_gpu(SourcedValues values, System& s) {
  s.gpu.name = values.plain_text("name");
  read_figures(values, "gpu", s);
  values.finish();
}

void read_node(SourcedValues values, System& s) {
  read_figures(values, "node", s);
  s.grace = values.flag("grace");
  s.host_cpu = values.text("host_cpu");
  values.finish();
}

void read_fabric(SourcedValues values, System& s) {
  read_figures(values, "fabric", s);
  s.nvls = values.flag("nvls");
  values.finish();
}

/// `path` is "" for a system file and "system" for one that a profile embeds.
Result<System> read_system(const Document& doc, const Node& node, const std::string& path) {
  Diagnostics problems;
  if (path.empty()) check_schema(doc, "system", 1, problems);
  MapReader reader(doc, node, path, problems);
  reader.ignore("schema");
  System s;
  s.path = doc.file;
  s.name = reader.required_text("name");
  if (const Node* gpu = reader.require("gpu")) {
    read_gpu({doc, *gpu, reader.path_of("gpu"), problems}, s);
  }
  if (const Node* host = reader.require("node")) {
    read_node({doc, *host, reader.path_of("node"), problems}, s);
  }
  const Node* fabric = reader.require("fabric");
  if (fabric) read_fabric({doc, *fabric, reader.path_of("fabric"), problems}, s);
  reader.finish();
  if (problems.empty()) {
    if (const std::string wrong = node_shape_problem(s); !wrong.empty()) {
      reader.complain(*fabric, "fabric.gpus_per_nvlink_domain", wrong);
    }
  }
  if (!problems.empty()) return problems;
  return s;
}

bool is_profile(const Document& doc) {
  const Node* schema = doc.root.find("schema");
  return schema != nullptr && schema->as_string().value_or("").starts_with("moecast/profile@");
}

/// The file of a shipped system or profile; else the path itself, taken from `folder` when it is
/// there.
std::string locate(const std::string& name_or_path, const fs::path& folder) {
  const std::vector<std::string> names = shipped_systems();
  if (std::find(names.begin(), names.end(), name_or_path) != names.end()) {
    return (systems_dir() / (name_or_path + ".yaml")).string();
  }
  if (const std::string profile = shipped_profile(name_or_path); !profile.empty()) return profile;
  std::error_code ignored;
  const fs::path beside = folder / name_or_path;
  return fs::exists(beside, ignored) ? beside.string() : name_or_path;
}

Diagnostic unknown_system(const std::string& name, Diagnostic where) {
  where.message = fmt::format("no system or file is named '{}'", name);
  where.hint = suggestion(name, shipped_systems());
  return where;
}

Result<System> system_of_profile(const Document& doc) {
  Diagnostics problems;
  check_schema(doc, "profile", 1, problems);
  MapReader reader(doc, doc.root, "", problems);
  const Node* system = reader.require("system");
  if (!problems.empty()) return problems;
  if (system->is_map()) return read_system(doc, *system, "system");

  const std::string name = reader.required_text("system");
  if (!problems.empty()) return problems;
  const std::string file = locate(name, fs::path(doc.file).parent_path());
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    return unknown_system(name, doc.problem(system->mark, "system", ""));
  }
  auto named = read_document(file);
  if (!named) return named.problems();
  return read_system(named.value(), named.value().root, "");
}

}  // namespace

std::string node_shape_problem(const System& system) {
  const int node = system.gpus_per_node, domain = system.gpus_per_nvlink_domain;
  if (node >= 1 && domain >= 1 && domain % node == 0) return "";
  return fmt::format("an NVLink domain of {} GPUs does not hold whole nodes of {}", domain, node);
}

Result<System> load_system(const std::string& name_or_path) {
  const std::string file = locate(name_or_path, "");
  std::error_code ignored;
  if (name_or_path.empty() || !fs::exists(file, ignored)) {
    return unknown_system(name_or_path, {"", 0, 0, "cluster.system", "", ""});
  }
  auto doc = read_document(file);
  if (!doc) return doc.problems();
  if (is_profile(doc.value())) return system_of_profile(doc.value());
  return read_system(doc.value(), doc.value().root, "");
}

std::vector<std::string> shipped_systems() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(systems_dir(), ignored)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

FlopsPerSecond peak_flops(const Gpu& gpu, Precision p) {
  switch (p) {
    case Precision::bf16:
      return gpu.bf16;
    case Precision::nvfp4:
      return gpu.fp4;
    case Precision::fp8_delayed:
    case Precision::fp8_tensorwise:
    case Precision::fp8_blockwise:
    case Precision::mxfp8:
      return gpu.fp8;
  }
  return {};
}

}  // namespace moecast
