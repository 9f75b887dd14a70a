#pragma once
/// The model YAML, schema moecast/model@1. Either Megatron's terms (what `moecast import` prints)
/// or a wrapped HF config:
///   schema: moecast/model@1        schema: moecast/model@1
///   name: tiny                     name: deepseek-v3
///   hidden_size: 2048 ...          source: where the facts are from
///   moe: {num_moe_experts: 64 ..}  hf_config: {hidden_size: 7168, ...}
///   mixers: {mla: {kind: mla, ..}} training: {num_nextn_predict_layers: 2}   # what recipes train
///   instead layers: [1 x mla+dense, 26 x mla+moe]
#include "core/document.hpp"
#include "moecast/model_spec.hpp"

namespace moecast {

Result<ModelSpec> read_model_yaml(Document doc, const nlohmann::ordered_json& overrides);

/// HF-named overrides on a spec (models that are not HF configs).
void override_spec(ModelSpec& m, const nlohmann::ordered_json& overrides, Diagnostics& problems);

/// "3 x mla+dense", "18 x gqa+moe gqa2+moe": runs of repeated periods.
std::vector<std::string> layer_runs(const std::vector<std::string>& tokens);

}  // namespace moecast
