#pragma once
/// A run -> what starts it: Megatron-LM's flags, Megatron-Bridge's overrides, the performance
/// harness, or a dry run of one rank.
#include <cstdint>

#include "layout/megatron_config.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/result.hpp"
#include "moecast/run.hpp"

namespace moecast {

enum class ExportKind : std::uint8_t { megatron_lm, bridge, harness, dry_run };
std::vector<std::string> export_kind_names();
std::optional<ExportKind> export_kind(std::string_view name);
std::string_view to_string(ExportKind kind);
/// .sh, or .txt for overrides.
std::string_view file_ending(ExportKind kind);

struct Exported {
  std::string text;
  Diagnostics warnings;  ///< keys that the target has no word for, and options to check by hand
};

/// `software` is the run's, completed by its stack. What the target cannot say stands in
/// "# moecast: key=value" lines, so that importing the text gives the same run.
Result<Exported> export_run(const Run& run, const ModelSpec& model, const Software& software,
                            ExportKind kind);

}  // namespace moecast
