#include "cli/command.hpp"
#include "core/document.hpp"
#include "layout/knobs.hpp"

namespace moecast::cli {
namespace {

/// Where a run file sets a knob, by whatever of its spellings the file uses; line 0 where it does
/// not.
Mark mark_of(const Node& root, const Knob& knob) {
  const Node* section = knob.section().empty() ? &root : root.find(knob.section());
  if (section == nullptr || !section->is_map()) return {};
  for (const Node::Entry& entry : section->entries) {
    for (const std::string& name : knob.names())
      if (entry.key == name) return entry.mark;
  }
  return {};
}

}  // namespace

Diagnostics located(Diagnostics problems, const std::string& run_file) {
  const Result<Document> document = read_document(run_file);
  for (Diagnostic& problem : problems) {
    if (!problem.file.empty()) continue;
    problem.file = run_file;
    const Knob* knob = find_knob(problem.key);
    if (!document || knob == nullptr) continue;
    const Mark mark = mark_of(document.value().root, *knob);
    problem.line = mark.line;
    problem.column = mark.column;
  }
  return problems;
}

}  // namespace moecast::cli
