#include "cli/export_files.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "cli/command.hpp"
#include "core/document.hpp"
#include "layout/run_file.hpp"
#include "moecast/model_io.hpp"
#include "moecast/stack.hpp"

namespace moecast::cli {
namespace {

namespace fs = std::filesystem;

struct NamedText {
  fs::path path;
  std::string text;
};

Result<std::string> text_of(const Run& run, const std::string& kind, const std::string& name) {
  const auto target = export_kind(kind);
  if (!target) return to_yaml(run_to_json(run));
  const Result<Exported> exported = export_of(run, *target);
  if (!exported) return exported.problems();
  for (Diagnostic warning : exported.value().warnings) {
    warning.file = name;
    std::fprintf(stderr, "warning: %s\n", to_string(warning).c_str());
  }
  return exported.value().text;
}

Diagnostics write_all(const std::vector<NamedText>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Diagnostics problems = write_file(files[i].path.string(), files[i].text);
    if (problems.empty()) continue;
    std::error_code ignored;
    for (std::size_t k = 0; k < i; ++k) fs::remove(files[k].path, ignored);
    return problems;
  }
  return {};
}

}  // namespace

Result<Exported> export_of(const Run& run, ExportKind kind) {
  const Result<ModelSpec> model = load_model(run.model, run.model_overrides, run.base_dir);
  if (!model) return model.problems();
  const std::string container = run.software.container.empty() ? "current" : run.software.container;
  const fs::path beside = fs::path(run.base_dir) / container;
  std::error_code error;
  const bool is_beside = !run.base_dir.empty() && fs::is_regular_file(beside, error);
  const Result<StackMatch> stack = load_stack(is_beside ? beside.string() : container);
  if (!stack) return stack.problems();
  return export_run(run, model.value(), complete_software(run.software, stack.value().stack), kind);
}

std::vector<std::string> search_export_kinds() {
  std::vector<std::string> kinds = export_kind_names();
  kinds.insert(kinds.begin(), "run");
  return kinds;
}

Diagnostics write_ranked(const std::string& kind, const std::string& folder,
                         const std::vector<RankedLayout>& ranked) {
  const auto target = export_kind(kind);
  std::vector<NamedText> files;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const std::string name =
        fmt::format("rank-{:02}{}", i + 1, target ? file_ending(*target) : ".yaml");
    Result<std::string> text = text_of(ranked[i].run, kind, name);
    if (!text) return text.problems();
    files.push_back({fs::path(folder) / name, text.take()});
  }
  std::error_code ignored;  // the first file says what is wrong with the folder
  fs::create_directories(folder, ignored);
  return write_all(files);
}

}  // namespace moecast::cli
