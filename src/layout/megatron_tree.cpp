// The YAML inputs.
#include <fmt/format.h>

#include "layout/megatron_readers.hpp"

namespace moecast {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepestSection = 8;

/// Bridge's ConfigContainer: sections of sections, or dotted keys.
void read_sections(const Node& node, const std::string& path, const InputOptions& options,
                   OptionReader& reader, std::size_t depth) {
  for (const Node::Entry& entry : node.entries) {
    const std::string key = path.empty() ? entry.key : path + "." + entry.key;
    if (entry.value.is_map() && depth < kDeepestSection) {
      read_sections(entry.value, key, options, reader, depth + 1);
      continue;
    }
    if (entry.key == "_target_" || key.find('.') == std::string::npos) {
      if (key != "mixed_precision") continue;
    }
    if (entry.value.is_scalar()) {
      reader.assignment(key, expand_text(entry.value.scalar, options.variables), entry.mark.line);
    } else if (entry.value.is_null()) {
      reader.assignment(key, "null", entry.mark.line);
    } else {
      reader.assignment(key, json(entry.value.to_json()).dump(), entry.mark.line);
    }
  }
}

void read_environment(const Node& node, const InputOptions& options, OptionReader& reader) {
  for (const Node::Entry& entry : node.entries) {
    if (entry.value.is_scalar())
      reader.environment(entry.key, expand_text(entry.value.scalar, options.variables));
  }
}

/// --flag: value, or the field's name: value.
void read_arguments(const Node& node, OptionReader& reader) {
  for (const Node::Entry& entry : node.entries) {
    json value = entry.value.to_json();
    const MegatronField* field = find_megatron_field(entry.key);
    const bool as_written = entry.value.is_scalar() && !value.is_boolean();
    if (as_written) value = entry.value.scalar;
    if (field != nullptr && entry.value.is_null()) {
      reader.set(field->name, entry.key, nullptr, entry.mark.line);
    } else if (!entry.value.is_null()) {
      reader.value(entry.key, value, entry.mark.line);
    }
  }
}

bool has_section_of_bridge(const Node& root) {
  for (const char* section : {"model", "train", "ddp", "optimizer", "comm_overlap", "checkpoint",
                              "mixed_precision", "dist"}) {
    const Node* node = root.find(section);
    if (node != nullptr && node->is_map()) return true;
  }
  for (const Node::Entry& entry : root.entries)
    if (entry.key.find('.') != std::string::npos) return true;
  return false;
}

}  // namespace

void read_argument_tree(const Document& doc, const InputOptions& options, MegatronInput& input,
                        OptionReader& reader) {
  const Node& root = doc.root;
  const bool fixed = !options.from.empty();
  if (!fixed)
    input.kind = has_section_of_bridge(root) ? InputKind::bridge : InputKind::megatron_yaml;
  const bool bridge = input.kind == InputKind::bridge;
  input.flavour = bridge ? Flavour::bridge : Flavour::megatron_lm;
  input.config = default_config(input.flavour);
  if (bridge) return read_sections(root, "", options, reader, 0);
  const Node* arguments = root.find("MODEL_ARGS");
  if (arguments == nullptr) return read_arguments(root, reader);
  if (const Node* env = root.find("ENV_VARS")) read_environment(*env, options, reader);
  read_arguments(*arguments, reader);
}

}  // namespace moecast
