#include "moecast/stack.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "topology/stack_file.hpp"

namespace moecast {
namespace {

namespace fs = std::filesystem;

constexpr int kLongestChain = 8;  ///< of `base:` references

fs::path stack_folder() { return data_dir() / "hwdb" / "stacks"; }
std::string shipped_path(const std::string& name) {
  return (stack_folder() / (name + ".yaml")).string();
}

bool looks_like_path(const std::string& text) {
  const std::string extension = fs::path(text).extension().string();
  return text.find('/') != std::string::npos || extension == ".yaml" || extension == ".yml" ||
         extension == ".json";
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<Stack> load_chain(const std::string& path, int depth) {
  auto file = read_stack_file(path);
  if (!file) return file.problems();
  const StackFile& own = file.value();
  if (own.base.empty()) return own.applied_to(Stack{});
  const auto shipped = shipped_stacks();
  if (!contains(shipped, own.base)) {
    return own.document.problem(own.base_mark, "base",
                                fmt::format("'{}' is not a shipped stack", own.base),
                                suggestion(own.base, shipped));
  }
  if (depth == kLongestChain) {
    return own.document.problem(own.base_mark, "base", "the stacks refer to each other in a circle",
                                "");
  }
  auto base = load_chain(shipped_path(own.base), depth + 1);
  if (!base) return base.problems();
  return own.applied_to(base.take());
}

Result<StackMatch> matched(const std::string& path, bool exact) {
  auto stack = load_chain(path, 0);
  if (!stack) return stack.problems();
  return StackMatch{stack.take(), exact};
}

}  // namespace

Result<StackMatch> load_stack(const std::string& name_or_path) {
  const std::string name = name_or_path.empty() ? "current" : name_or_path;
  const auto shipped = shipped_stacks();
  if (contains(shipped, name)) return matched(shipped_path(name), true);
  std::vector<std::string> known = shipped;
  for (const std::string& candidate : shipped) {
    const auto file = read_stack_file(shipped_path(candidate));
    if (!file) return file.problems();
    if (contains(file.value().point_releases, name)) return matched(shipped_path(candidate), true);
    if (contains(file.value().aliases, name)) return matched(shipped_path(candidate), false);
    known.insert(known.end(), file.value().point_releases.begin(),
                 file.value().point_releases.end());
  }
  if (looks_like_path(name)) return matched(name, true);
  return Diagnostic{"",
                    0,
                    0,
                    "software.container",
                    fmt::format("'{}' is not a known software stack", name),
                    suggestion(name, known)};
}

std::vector<std::string> shipped_stacks() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(stack_folder(), error)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Software complete_software(const Software& asked, const Stack& stack) {
  Software full = asked;
  const auto fill = [](std::string& field, const std::string& from) {
    if (field.empty()) field = from;
  };
  fill(full.container, stack.name);
  fill(full.pytorch, stack.software.pytorch);
  fill(full.transformer_engine, stack.software.transformer_engine);
  fill(full.megatron_core, stack.software.megatron_core);
  fill(full.bridge, stack.software.bridge);
  full.features.insert(stack.software.features.begin(), stack.software.features.end());
  full.env.insert(stack.software.env.begin(), stack.software.env.end());
  return full;
}

}  // namespace moecast
