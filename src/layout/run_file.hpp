#pragma once
/// Run files (moecast/run@1, YAML or JSON) <-> Run.
#include <string>
#include <vector>

#include "core/document.hpp"
#include "moecast/run.hpp"

namespace moecast {

/// Reads and completes a run file, then applies `--set key=value` strings in order. All problems at
/// once, with file:line:column.
Result<Run> read_run(const std::string& path, const std::vector<std::string>& sets = {});
Result<Run> run_from_document(const Document& doc, const std::vector<std::string>& sets = {});
/// One `--set`: key.path=value, value a YAML scalar or flow value. Problems name "--set" as the
/// file.
Diagnostics apply_set(Run& run, const std::string& assignment);
/// The knob that such a key names, also within an open map (software.features.paged_stash), or
/// nullptr.
const struct Knob* knob_of_key(const std::string& key);
/// The completed run as the run file's tree (schema line first, every key present).
/// run_from_document of it gives the same Run.
nlohmann::ordered_json run_to_json(const Run& run);
/// The run of such a tree, paths taken from the working directory.
Result<Run> run_from_json(const nlohmann::ordered_json& tree);

}  // namespace moecast
