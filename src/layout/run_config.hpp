#pragma once
/// A run as Megatron's configuration: the inverse of import_run.
#include "layout/megatron_config.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/result.hpp"
#include "moecast/run.hpp"

namespace moecast {

/// `software` is the run's, completed by its stack. `auto` becomes what it stands for. Problems are
/// those of the pipeline's plan.
Result<MegatronConfig> config_of_run(const Run& run, const ModelSpec& model,
                                     const Software& software, Flavour flavour);
/// False for models whose layers Megatron's options of a GPT model cannot say (Mamba, gated delta
/// net, compressed attention, ...).
bool has_gpt_options(const ModelSpec& model);

}  // namespace moecast
