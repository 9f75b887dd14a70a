#include "model/import_hf.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "model/hf_fields.hpp"
#include "model/spec_fields.hpp"

namespace moecast {
namespace {

std::uint8_t intern(ModelSpec& m, const Mixer& mixer, HfConfig& config) {
  const auto at = std::find(m.mixers.begin(), m.mixers.end(), mixer);
  if (at != m.mixers.end()) return static_cast<std::uint8_t>(at - m.mixers.begin());
  if (m.mixers.size() > std::numeric_limits<std::uint8_t>::max()) {
    config.complain("num_hidden_layers", "has more than 255 kinds of attention layer");
    return 0;
  }
  m.mixers.push_back(mixer);
  return static_cast<std::uint8_t>(m.mixers.size() - 1);
}

void read_globals(HfConfig& config, ModelSpec& m) {
  m.architecture = config.architecture_name();
  m.hidden_size = config.required("hidden_size");
  m.vocab_size = config.required("vocab_size");
  m.untie_embeddings_and_output_weights =
      !config.flag("tie_word_embeddings", config.has_trait(kTied));
  const std::string activation = config.text("hidden_act");
  m.gated_linear_unit = activation != "relu2" && activation != "squared_relu";
  m.add_bias_linear = config.has_trait(kBiases);
  m.layernorm = config.has_trait(kLayerNorm);
  m.hyper_connections = config.count("hc_mult");
  m.mtp_use_repeated_layer = config.has_trait(kRepeatedMtp);
  if (config.flag("use_mtp", true)) m.mtp_num_layers = config.count("num_nextn_predict_layers");
}

LayerKind hybrid_layer(HfConfig& config, ModelSpec& m, const HybridLayer& layer) {
  LayerKind kind;
  kind.ffn = layer.ffn;
  if (layer.mamba) kind.mixer = intern(m, import_mamba(config), config);
  if (layer.attention) kind.mixer = intern(m, import_attention(config), config);
  return kind;
}

void read_hybrid_layers(HfConfig& config, ModelSpec& m, const std::vector<HybridLayer>& pattern) {
  m.hybrid = true;
  for (const HybridLayer& layer : pattern) m.layers.push_back(hybrid_layer(config, m, layer));
  if (m.mtp_num_layers == 0) return;
  const std::vector<HybridLayer> depth =
      hybrid_layers(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type");
  for (const HybridLayer& layer : depth) m.mtp_pattern.push_back(hybrid_layer(config, m, layer));
  if (depth.empty()) m.mtp_pattern = {m.layers.back()};
}

void read_uniform_layers(HfConfig& config, ModelSpec& m, int num_layers) {
  const std::vector<Mixer> mixers = import_mixers(config, num_layers);
  const std::vector<FfnKind> kinds = import_ffn_kinds(config, num_layers);
  for (std::size_t i = 0; i < kinds.size(); ++i)
    m.layers.push_back({intern(m, mixers[i], config), kinds[i]});
  if (m.mtp_num_layers > 0) m.mtp_pattern = {{intern(m, mixers.back(), config), kinds.back()}};
}

bool matters(const Node& value) {
  if (value.is_null()) return false;
  if (const auto flag = value.as_bool()) return *flag;
  if (const auto number = value.as_double()) return *number != 0.0;
  return true;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// Sorts every key of every level: used, irrelevant, not modelled (its own warning), unknown (one
/// summary).
void warn(const HfConfig& config, ModelSpec& m) {
  if (config.architecture() == nullptr) {
    m.warnings.push_back("architecture '" + m.architecture +
                         "' is not in the table: read by its key names alone");
  }
  std::vector<std::string> unknown;
  for (const Node* scope : config.scopes()) {
    for (const Node::Entry& e : scope->entries) {
      const auto gap = std::find_if(hf_unmodelled().begin(), hf_unmodelled().end(),
                                    [&](const HfUnmodelled& u) { return u.key == e.key; });
      if (gap != hf_unmodelled().end()) {
        if (matters(e.value)) m.warnings.push_back(e.key + ": " + std::string(gap->effect));
        continue;
      }
      const bool nesting =
          e.value.is_map() && std::find(config.scopes().begin(), config.scopes().end(), &e.value) !=
                                  config.scopes().end();
      const bool known = nesting || e.key.starts_with("_") || e.key == "linear_attn_config" ||
                         hf_field(e.key) != nullptr || is_irrelevant(e.key);
      if (!known) unknown.push_back(e.key);
    }
  }
  if (!unknown.empty())
    m.warnings.push_back("unknown keys, taken to cost nothing: " + join(unknown));
}

void refuse_idle_overrides(HfConfig& config, const std::vector<std::string>& overridden) {
  for (const std::string& key : overridden) {
    const HfField* field = hf_field(key);
    if (field == nullptr || config.asked().count(std::string(field->canonical())) > 0) continue;
    config.problems().push_back({config.document().file, 0, 0, "model_overrides." + key,
                                 "has no effect on this model", "remove it"});
  }
}

HybridLayer hybrid_letter(char letter) {
  HybridLayer layer;
  layer.mamba = letter == 'M';
  layer.attention = letter == '*';
  if (letter == 'E') layer.ffn = FfnKind::moe;
  if (letter == '-') layer.ffn = FfnKind::dense;
  return layer;
}

char block_letter(const std::string& word) {
  if (word == "mamba") return 'M';
  if (word == "moe") return 'E';
  if (word == "attention") return '*';
  return word == "mlp" ? '-' : '?';
}

}  // namespace

std::vector<HybridLayer> hybrid_layers(HfConfig& config, std::string_view pattern_field,
                                       std::string_view list_field) {
  std::string letters;
  std::string_view field = pattern_field;
  if (config.has(list_field)) {
    field = list_field;
    for (const std::string& word : config.words(list_field)) letters += block_letter(word);
  } else {
    letters = config.text(pattern_field);
  }
  std::vector<HybridLayer> layers;
  for (char letter : letters) {
    if (std::string_view("ME*-").find(letter) == std::string_view::npos) {
      config.complain(field, "holds a block that is not known",
                      "M mamba, E moe, * attention, - mlp");
    }
    layers.push_back(hybrid_letter(letter));
  }
  return layers;
}

int layer_count(HfConfig& config, const std::vector<HybridLayer>& hybrid) {
  int layers = static_cast<int>(std::min<std::size_t>(hybrid.size(), kMostModelLayers + 1));
  if (hybrid.empty() || config.has("num_hidden_layers")) {
    layers = config.required("num_hidden_layers");
    if (!hybrid.empty() && static_cast<std::size_t>(layers) != hybrid.size()) {
      config.complain("num_hidden_layers", "is " + std::to_string(layers) +
                                               " but the layer pattern has " +
                                               std::to_string(hybrid.size()) + " layers");
    }
  }
  if (layers > kMostModelLayers) {
    config.complain("num_hidden_layers", "is out of range",
                    "at most " + std::to_string(kMostModelLayers));
  }
  return std::min(layers, kMostModelLayers);
}

bool check_length(HfConfig& config, std::string_view field, std::size_t entries, int num_layers) {
  const auto layers = static_cast<std::size_t>(num_layers);
  const auto tail = static_cast<std::size_t>(config.count("num_nextn_predict_layers"));
  if (entries == layers || entries == layers + tail ||
      (entries == layers + 1 && field == "compress_ratios")) {
    return true;
  }
  config.complain(
      field,
      "has " + std::to_string(entries) + " entries for " + std::to_string(num_layers) + " layers",
      "one entry per layer");
  return false;
}

Result<ModelSpec> import_hf(const Document& doc, const Node& root, const std::string& name,
                            const std::vector<std::string>& overridden) {
  Diagnostics problems;
  if (!root.is_map()) return doc.problem(root.mark, "", "a model config must be a map of keys");
  HfConfig config(doc, root, problems);
  ModelSpec m;
  m.name = name;
  m.mixers = {Mixer{}};
  read_globals(config, m);
  m.moe = import_moe(config);
  const std::vector<HybridLayer> pattern =
      hybrid_layers(config, "hybrid_override_pattern", "layers_block_type");
  const int num_layers = layer_count(config, pattern);
  if (pattern.empty()) {
    read_uniform_layers(config, m, num_layers);
  } else {
    read_hybrid_layers(config, m, pattern);
  }
  const auto is_dense = [](const LayerKind& l) { return l.ffn == FfnKind::dense; };
  if (std::any_of(m.layers.begin(), m.layers.end(), is_dense))
    m.ffn_hidden_size = dense_ffn_width(config);
  for (const SpecProblem& p : check_spec(m)) config.complain(p.hf, p.message);
  refuse_idle_overrides(config, overridden);
  if (!problems.empty()) return problems;
  warn(config, m);
  return m;
}

}  // namespace moecast
