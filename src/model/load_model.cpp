#include <algorithm>
#include <filesystem>

#include "core/document.hpp"
#include "model/import_hf.hpp"
#include "model/model_yaml.hpp"
#include "moecast/model_io.hpp"

namespace moecast {
namespace {

namespace fs = std::filesystem;

fs::path models_dir() { return data_dir() / "configs" / "models"; }

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

/// The file meant by `name`, or an empty path. A shipped name wins over a file of that name in the
/// working directory.
fs::path locate(const std::string& name, const std::string& base_dir) {
  const bool plain = name.find('/') == std::string::npos;
  if (plain && is_file(models_dir() / (name + ".yaml"))) return models_dir() / (name + ".yaml");
  const fs::path path(name);
  if (path.is_relative() && !base_dir.empty() && is_file(fs::path(base_dir) / path))
    return fs::path(base_dir) / path;
  return is_file(path) ? path : fs::path();
}

/// A config.json is named by its folder, other files by themselves.
std::string config_name(const fs::path& path) {
  const std::string stem = path.stem().string();
  std::error_code error;
  const std::string folder = fs::absolute(path, error).parent_path().filename().string();
  return stem == "config" && !folder.empty() ? folder : stem;
}

Diagnostic not_found(const std::string& name) {
  const std::string hint = suggestion(name, shipped_models());
  return {"",
          0,
          0,
          "model",
          "'" + name + "' is neither a shipped model nor a file",
          hint.empty() ? "`moecast list models` names the shipped ones" : hint};
}

Result<ModelSpec> load_config(Document doc, const std::string& name,
                              const nlohmann::ordered_json& overrides) {
  Diagnostics problems;
  if (!doc.root.is_map()) return doc.problem(doc.root.mark, "", "a model must be a map of keys");
  apply_hf_overrides(doc.root, overrides, problems);
  if (!problems.empty()) return problems;
  std::vector<std::string> keys;
  for (const auto& [key, value] : overrides.items()) keys.push_back(key);
  return import_hf(doc, doc.root, name, keys);
}

}  // namespace

Result<ModelSpec> load_model(const std::string& name_or_path,
                             const nlohmann::ordered_json& overrides, const std::string& base_dir) {
  const fs::path path = locate(name_or_path, base_dir);
  if (path.empty()) return not_found(name_or_path);
  Result<Document> doc = read_document(path.string());
  if (!doc) return doc.problems();
  if (!overrides.is_null() && !overrides.is_object()) {
    return Diagnostic{
        "", 0, 0, "model_overrides", "must be a map of HF keys", "{num_hidden_layers: 4}"};
  }
  const nlohmann::ordered_json changes =
      overrides.is_null() ? nlohmann::ordered_json::object() : overrides;
  const bool ours = doc.value().root.is_map() && doc.value().root.find("schema") != nullptr;
  if (ours) return read_model_yaml(doc.take(), changes);
  return load_config(doc.take(), config_name(path), changes);
}

std::vector<std::string> shipped_models() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(models_dir(), error)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace moecast
