#pragma once
/// Models in and out: shipped YAML (configs/models, schema moecast/model@1), HF config.json,
/// overrides by HF key.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "moecast/model_spec.hpp"
#include "moecast/result.hpp"

namespace moecast {

/// A shipped name, a path to a HF config.json, or a path to a model YAML. `overrides` are HF keys
/// ({num_hidden_layers: 4}) and apply to all three. Relative paths are taken from `base_dir` first,
/// then from the working directory.
Result<ModelSpec> load_model(const std::string& name_or_path,
                             const nlohmann::ordered_json& overrides, const std::string& base_dir);

/// The shipped names, sorted.
std::vector<std::string> shipped_models();

/// The model YAML that `moecast import config.json` prints; load_model of it gives the same spec.
nlohmann::ordered_json model_to_json(const ModelSpec& m);

/// The pieces of the FLOP count, for the work of one layer: forward+backward FLOPs per token. Ref:
/// megatron/training/training.py num_floating_point_operations.
double layer_model_flops_per_token(const ModelSpec& m, const LayerKind& layer, int seq_length);

}  // namespace moecast
