#pragma once
/// The writers of each kind of export.
#include "layout/megatron_export.hpp"

namespace moecast {

struct ExportSource {
  const Run& run;
  const ModelSpec& model;
  const MegatronConfig& config;     ///< of the run
  const MegatronConfig& base;       ///< the flavour's defaults
  const MegatronConfig& unchanged;  ///< of the run without model_overrides
};

/// The lines after the header.
std::string megatron_lm_text(const ExportSource& source, bool dry_run);
std::string bridge_text(const ExportSource& source);
std::string harness_text(const ExportSource& source);

/// A word as a shell takes it.
std::string shell_quoted(const std::string& word);
/// A value as Megatron-LM's words or as Hydra's value.
std::string option_words(const nlohmann::json& value);
std::string hydra_value(const nlohmann::json& value);

}  // namespace moecast
