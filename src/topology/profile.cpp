#include "topology/profile.hpp"

#include <algorithm>
#include <filesystem>

#include "core/document.hpp"

namespace moecast {
namespace {

namespace fs = std::filesystem;

struct Leaf {
  const Node* node;
  Mark mark;
};

/// Every {value, sd, source, kind} under `node`, by dotted path.
void collect_leaves(const Node& node, const std::string& prefix,
                    std::vector<std::pair<std::string, Leaf>>& out) {
  for (const auto& entry : node.entries) {
    const std::string path = prefix.empty() ? entry.key : prefix + "." + entry.key;
    if (entry.value.is_map() && entry.value.find("value") == nullptr) {
      collect_leaves(entry.value, path, out);
    } else {
      out.push_back({path, {&entry.value, entry.mark}});
    }
  }
}

void read_leaf(const Document& doc, const std::string& path, const Leaf& leaf, Profile& profile,
               Diagnostics& problems) {
  const auto& table = parameter_table();
  auto row =
      std::find_if(table.begin(), table.end(), [&](const Parameter& p) { return p.path == path; });
  if (row == table.end()) {
    std::vector<std::string> names;
    for (const auto& p : table) names.push_back(p.path);
    problems.push_back(doc.problem(leaf.mark, path, "no such parameter", suggestion(path, names)));
    return;
  }
  if (!leaf.node->is_map()) {
    problems.push_back(doc.problem(leaf.mark, path, "a parameter is {value, sd, source, kind}"));
    return;
  }
  MapReader reader(doc, *leaf.node, path, problems);
  ParameterValue v;
  v.value = reader.required_number("value");
  v.sd = reader.number("sd", 0.2);
  v.source = reader.required_text("source");
  v.kind = reader.text("kind", "assumed");
  reader.ignore("residual");
  reader.finish();
  if (v.value < row->low || v.value > row->high) {
    problems.push_back(
        doc.problem(leaf.mark, path, "outside its physical bounds",
                    "between " + std::to_string(row->low) + " and " + std::to_string(row->high)));
  }
  row->in(profile.calibration) = v.value;
  profile.values[path] = v;
}

fs::path resolve(const std::string& name, const fs::path& beside) {
  if (name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".json")) {
    if (!beside.empty() && fs::exists(beside / name)) return beside / name;
    return name;
  }
  return data_dir() / "hwdb" / "profiles" / (name + ".yaml");
}

void load_into(const fs::path& path, int depth, Profile& profile, Diagnostics& problems) {
  if (depth > 4) {
    problems.push_back(
        {path.string(), 0, 0, "extends", "profiles extend each other in a circle", ""});
    return;
  }
  auto read = read_document(path.string());
  if (!read) {
    problems.insert(problems.end(), read.problems().begin(), read.problems().end());
    return;
  }
  const Document& doc = read.value();
  check_schema(doc, "profile", 1, problems);
  if (const Node* base = doc.root.find("extends"); base != nullptr && base->is_scalar()) {
    load_into(resolve(base->scalar, path.parent_path()), depth + 1, profile, problems);
  }
  profile.calibration.name = path.stem().string();
  if (const Node* system = doc.root.find("system"); system != nullptr && system->is_scalar()) {
    profile.calibration.system = system->scalar;
  }
  std::vector<std::pair<std::string, Leaf>> leaves;
  for (const auto& entry : doc.root.entries) {
    static constexpr const char* kHeader[] = {"schema", "extends", "system",
                                              "device", "notes",   "curves"};
    if (std::find(std::begin(kHeader), std::end(kHeader), entry.key) != std::end(kHeader)) continue;
    if (!entry.value.is_map()) {
      problems.push_back(doc.problem(entry.mark, entry.key, "a section is a map of parameters"));
      continue;
    }
    collect_leaves(entry.value, entry.key, leaves);
  }
  for (const auto& [name, leaf] : leaves) read_leaf(doc, name, leaf, profile, problems);
}

}  // namespace

Result<Profile> load_profile(const std::string& name_or_path) {
  Profile profile;
  Diagnostics problems;
  load_into(resolve(name_or_path, {}), 0, profile, problems);
  if (problems.empty()) {
    for (const auto& p : parameter_table()) {
      if (!profile.values.contains(p.path)) {
        problems.push_back(
            {name_or_path, 0, 0, p.path, "parameter is missing", "extend hopper or blackwell"});
      }
    }
  }
  if (!problems.empty()) return problems;
  return profile;
}

std::string shipped_profile(const std::string& name) {
  std::error_code ignored;
  const fs::path path = data_dir() / "hwdb" / "profiles" / (name + ".yaml");
  return !name.empty() && fs::exists(path, ignored) ? path.string() : "";
}

Result<Profile> profile_for(const std::string& place, const System& system) {
  if (!shipped_profile(place).empty()) return load_profile(place);
  if (fs::path(place).has_extension()) {
    const auto document = read_document(place);
    const Node* schema = document ? document.value().root.find("schema") : nullptr;
    if (schema != nullptr && schema->scalar.starts_with("moecast/profile"))
      return load_profile(place);
  }
  if (!shipped_profile(system.name).empty()) return load_profile(system.name);
  return load_profile(system.gpu.compute_capability < 10 ? "hopper" : "blackwell");
}

}  // namespace moecast
