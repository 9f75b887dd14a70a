#include "layout/knobs.hpp"

#include <algorithm>
#include <unordered_map>

#include "layout/knob_values.hpp"

namespace moecast {
namespace {

/// --tensor-model-parallel-size -> tensor_model_parallel_size
std::string megatron_name(std::string_view flag) {
  std::string name(flag.substr(std::min<std::size_t>(2, flag.size())));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// A bare leaf such as `modules` or `num_layers` says too little (and `num_layers` would be the
/// model's); where Megatron's own name or the short name is the leaf, it is accepted.
std::vector<std::string> bare_names(const Knob& knob) {
  std::vector<std::string> names = knob.names();
  if (!knob.section().empty()) names.erase(names.begin());
  return names;
}

std::unordered_map<std::string, const Knob*> index_names() {
  std::unordered_map<std::string, const Knob*> index;
  for (const Knob& knob : knob_table()) {
    index.emplace(knob.key, &knob);
    for (const std::string& name : bare_names(knob)) index.emplace(name, &knob);
    if (knob.section().empty()) continue;
    for (const std::string& name : knob.names()) {
      index.emplace(std::string(knob.section()) + "." + name, &knob);
    }
  }
  return index;
}

const std::unordered_map<std::string, const Knob*>& name_index() {
  static const auto index = index_names();
  return index;
}

}  // namespace

std::string_view Knob::section() const {
  const std::size_t dot = key.find('.');
  return dot == std::string_view::npos ? "" : key.substr(0, dot);
}

std::string_view Knob::leaf() const { return key.substr(key.find('.') + 1); }

std::vector<std::string> Knob::names() const {
  std::vector<std::string> all{std::string(leaf())};
  if (!short_name.empty()) all.emplace_back(short_name);
  if (!translated) {
    if (!megatron_flag.empty()) all.push_back(megatron_name(megatron_flag));
    if (!bridge_key.empty()) all.emplace_back(bridge_key.substr(bridge_key.find('.') + 1));
  }
  return all;
}

const std::vector<Knob>& knob_table() {
  static const std::vector<Knob> table = [] {
    std::vector<Knob> rows = place_knobs();
    for (auto section : {moe_knobs(), memory_knobs(), training_knobs(), software_knobs()}) {
      rows.insert(rows.end(), section.begin(), section.end());
    }
    return rows;
  }();
  return table;
}

const Knob* find_knob(std::string_view name) {
  auto found = name_index().find(std::string(name));
  return found == name_index().end() ? nullptr : found->second;
}

std::vector<std::string> knob_names() {
  std::vector<std::string> names;
  for (const auto& entry : name_index()) names.push_back(entry.first);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace moecast
