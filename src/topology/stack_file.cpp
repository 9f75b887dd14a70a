#include "topology/stack_file.hpp"

#include <utility>

#include <fmt/format.h>

#include "topology/step_fit.hpp"

namespace moecast {
namespace {

class StackReader {
 public:
  StackReader(StackFile& file, Diagnostics& problems)
      : file_(file), problems_(problems), top_(file.document, file.document.root, "", problems) {}

  void read() {
    top_.ignore("schema");
    file_.name = top_.required_text("name");
    file_.base = top_.text("base", "");
    if (const Node* base = top_.get("base")) file_.base_mark = base->mark;
    file_.point_releases = names("point_releases");
    file_.aliases = names("aliases");
    if (const Node* software = top_.get("software")) read_software(*software);
    if (top_.get("transformer_engine"))
      file_.transformer_engine = top_.boolean("transformer_engine", true);
    if (const Node* features = top_.get("features")) read_features(*features);
    read_env();
    file_.fragmentation = number("fragmentation", 0.0, 1.0);
    file_.fragmentation_default_allocator = number("fragmentation_default_allocator", 0.0, 1.0);
    file_.context_gib = number("context_gib", 0.0, 64.0);
    file_.first_communicator_gib = number("first_communicator_gib", 0.0, 64.0);
    file_.communicator_gib = number("communicator_gib", 0.0, 64.0);
    file_.host_factor = number("host_factor", 0.01, 100.0);
    file_.memory_kernel_factor = number("memory_kernel_factor", 0.01, 100.0);
    if (const Node* parameters = top_.get("parameters"))
      file_.parameters = read_stack_parameters(file_.document, *parameters, problems_);
    if (const Node* deviations = top_.get("deviations")) {
      file_.deviations =
          read_deviations(file_.document, *deviations, "stack " + file_.name, problems_);
    }
    if (const Node* fit = top_.get("fit"))
      file_.fit = read_step_fit(file_.document, *fit, problems_);
    top_.finish();
  }

 private:
  std::vector<std::string> names(std::string_view key) {
    std::vector<std::string> list;
    const Node* node = top_.get(key);
    if (node == nullptr) return list;
    if (!node->is_sequence()) top_.complain(*node, key, "must be a list of release names");
    for (const Node& item : node->items) {
      if (const auto text = item.as_string()) {
        list.push_back(*text);
      } else {
        top_.complain(item, key, "must be a list of release names");
      }
    }
    return list;
  }

  void read_software(const Node& node) {
    if (!node.is_map()) return top_.complain(node, "software", "must be a map of versions");
    MapReader reader(file_.document, node, "software", problems_);
    file_.software.pytorch = reader.text("pytorch", "");
    file_.software.transformer_engine = reader.text("transformer_engine", "");
    file_.software.megatron_core = reader.text("megatron_core", "");
    file_.software.bridge = reader.text("bridge", "");
    if (const Node* source = reader.get("source"))
      file_.sources["software"] = source->as_string().value_or("");
    reader.finish();
  }

  /// A value, or {value: ..., kind: ..., source: ...}; the source is kept under `path`.
  const Node* sourced(const Node& node, const std::string& path) {
    if (!node.is_map()) return &node;
    MapReader reader(file_.document, node, path, problems_);
    const Node* value = reader.require("value");
    reader.ignore("kind");
    if (const std::string source = reader.text("source", ""); !source.empty())
      file_.sources[path] = source;
    reader.finish();
    return value;
  }

  void read_features(const Node& node) {
    if (!node.is_map())
      return top_.complain(node, "features", "must be a map of feature names to true or false");
    for (const auto& [name, mark, given] : node.entries) {
      const std::string path = "features." + name;
      const Node* value = sourced(given, path);
      if (value == nullptr) continue;
      if (const auto on = value->as_bool()) {
        file_.software.features[name] = *on;
      } else {
        problems_.push_back(file_.document.problem(value->mark, path, "must be true or false", ""));
      }
    }
  }

  void read_env() {
    const Node* node = top_.get("env");
    if (node == nullptr) return;
    if (!node->is_map())
      return top_.complain(*node, "env", "must be a map of variable names to values");
    for (const auto& [name, mark, value] : node->entries) {
      if (const auto text = value.as_string()) {
        file_.software.env[name] = *text;
      } else {
        problems_.push_back(
            file_.document.problem(value.mark, "env." + name, "must be a scalar", ""));
      }
    }
  }

  std::optional<double> number(const std::string& key, double low, double high) {
    const Node* given = top_.get(key);
    const Node* value = given == nullptr ? nullptr : sourced(*given, key);
    if (value == nullptr) return std::nullopt;
    const auto parsed = value->as_double();
    if (parsed && *parsed >= low && *parsed <= high) return parsed;
    top_.complain(*value, key, fmt::format("must be a number from {} to {}", low, high));
    return std::nullopt;
  }

  StackFile& file_;
  Diagnostics& problems_;
  MapReader top_;
};

}  // namespace

Stack StackFile::applied_to(Stack under) const {
  under.name = name;
  under.aliases = aliases;
  const auto replace = [](std::string& field, const std::string& own) {
    if (!own.empty()) field = own;
  };
  replace(under.software.pytorch, software.pytorch);
  replace(under.software.transformer_engine, software.transformer_engine);
  replace(under.software.megatron_core, software.megatron_core);
  replace(under.software.bridge, software.bridge);
  for (const auto& [feature, on] : software.features) under.software.features[feature] = on;
  for (const auto& [variable, value] : software.env) under.software.env[variable] = value;
  for (const auto& [key, source] : sources) under.sources[key] = source;
  under.transformer_engine = transformer_engine.value_or(under.transformer_engine);
  under.fragmentation = fragmentation.value_or(under.fragmentation);
  under.fragmentation_default_allocator =
      fragmentation_default_allocator.value_or(under.fragmentation_default_allocator);
  if (context_gib) under.context = gibibytes(*context_gib);
  if (first_communicator_gib) under.first_communicator = gibibytes(*first_communicator_gib);
  if (communicator_gib) under.communicator = gibibytes(*communicator_gib);
  under.host_factor = host_factor.value_or(under.host_factor);
  for (const auto& [path, value] : parameters) under.parameters[path] = value;
  under.deviations.insert(under.deviations.end(), deviations.begin(), deviations.end());
  if (fit) under.fit = *fit;
  under.memory_kernel_factor = memory_kernel_factor.value_or(under.memory_kernel_factor);
  return under;
}

Result<StackFile> read_stack_file(const std::string& path) {
  auto document = read_document(path);
  if (!document) return document.problems();
  StackFile file;
  file.document = document.take();
  Diagnostics problems;
  check_schema(file.document, "stack", 1, problems);
  if (!file.document.root.is_map()) return problems;
  StackReader(file, problems).read();
  if (!problems.empty()) return problems;
  return file;
}

}  // namespace moecast
