#pragma once
/// Exports as the commands export and search write them.
#include <string>
#include <vector>

#include "layout/megatron_export.hpp"
#include "moecast/search.hpp"

namespace moecast::cli {

/// Reads the model and the stack of a run, then exports it.
Result<Exported> export_of(const Run& run, ExportKind kind);

/// The kinds of search --export: run, and those of export.
std::vector<std::string> search_export_kinds();
/// One file per ranked layout in `folder`: rank-01.yaml, rank-01.sh, ... Whole or not at all: every
/// text is made before the first file is written, and a file that cannot be written takes the
/// earlier ones with it. Warnings go to stderr.
Diagnostics write_ranked(const std::string& kind, const std::string& folder,
                         const std::vector<RankedLayout>& ranked);

}  // namespace moecast::cli
