#pragma once
/// HF config.json -> ModelSpec. The steps, each in its file: which mixer each layer has
/// (import_hf_mixers.cpp), which layers are MoE and what their experts are (import_hf_ffn.cpp),
/// assembly, MTP and warnings (import_hf.cpp).
#include <string>
#include <vector>

#include "core/document.hpp"
#include "model/hf_config.hpp"
#include "moecast/model_spec.hpp"

namespace moecast {

/// More layers than that are an error of the file.
inline constexpr int kMostModelLayers = 10'000;

/// `root` is the config (the document's root, or the hf_config map of a model YAML). Keys of
/// `overridden` must matter to the model; one that does not is a problem.
Result<ModelSpec> import_hf(const Document& doc, const Node& root, const std::string& name,
                            const std::vector<std::string>& overridden);

/// Applies {HF key: value} to the config in place: whichever alias the config uses is replaced;
/// cutting layers cuts per-layer lists.
void apply_hf_overrides(Node& root, const nlohmann::ordered_json& overrides, Diagnostics& problems);

/// What a hybrid pattern says of one layer: M mamba, E moe, * attention, - mlp.
struct HybridLayer {
  bool mamba = false;
  bool attention = false;
  FfnKind ffn = FfnKind::none;
};
/// The decoder's hybrid pattern (a letter string or a list of block types); empty for ordinary
/// models.
std::vector<HybridLayer> hybrid_layers(HfConfig& config, std::string_view pattern_field,
                                       std::string_view list_field);

/// Number of decoder layers, from num_hidden_layers or the hybrid pattern.
int layer_count(HfConfig& config, const std::vector<HybridLayer>& hybrid);

/// One mixer per decoder layer, then one for a MTP layer.
std::vector<Mixer> import_mixers(HfConfig& config, int num_layers);
Mixer import_attention(HfConfig& config);
Mixer import_mamba(HfConfig& config);

MoeSpec import_moe(HfConfig& config);
int dense_ffn_width(HfConfig& config);
/// Dense or MoE for every layer.
std::vector<FfnKind> import_ffn_kinds(HfConfig& config, int num_layers);

/// A per-layer list must have one entry per layer (and may have one more per MTP layer).
bool check_length(HfConfig& config, std::string_view field, std::size_t entries, int num_layers);

}  // namespace moecast
