#pragma once
/// A run in Megatron's own names: what an export writes and what the rules read.
#include "layout/rules.hpp"
#include "moecast/cluster.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/run.hpp"

namespace moecast {

/// Everything that the run states or implies, for Bridge's or Megatron-LM's defaults elsewhere.
MegatronConfig megatron_config_of(const Run& run, const ModelSpec& model,
                                  Flavour flavour = Flavour::bridge);
/// The part that a layout decides, so that a search turns each candidate into knobs without
/// allocating.
void set_layout(MegatronKnobs& knobs, const Layout& layout);

/// What rules read beside the configuration: versions of `software`, the GPU, the model's layers.
Surroundings surroundings_of(const MegatronConfig& config, const Run& run, const ModelSpec& model,
                             const System& system, const Versions& versions,
                             Flavour flavour = Flavour::bridge);

}  // namespace moecast
