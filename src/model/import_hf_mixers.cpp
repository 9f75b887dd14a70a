#include <algorithm>

#include "model/import_hf.hpp"

namespace moecast {
namespace {

int kv_heads(HfConfig& config, int heads) {
  const bool defaults = config.architecture() == nullptr || config.has_trait(kMultiHead);
  if (defaults && !config.has("num_key_value_heads")) return heads;
  return config.required("num_key_value_heads",
                         "equal to num_attention_heads for multi-head attention");
}

int head_dim(HfConfig& config, int heads) {
  if (config.has("head_dim")) return config.required("head_dim");
  const int hidden = config.required("hidden_size");
  if (config.has("hidden_size") && hidden % heads != 0) {
    config.complain(
        "num_attention_heads",
        "does not divide hidden_size (" + std::to_string(hidden) + ") and head_dim is not given");
  }
  return std::max(1, hidden / heads);
}

Mixer gqa(HfConfig& config) {
  Mixer x;
  x.kind = MixerKind::gqa;
  x.num_attention_heads = config.required("num_attention_heads");
  x.num_query_groups = kv_heads(config, x.num_attention_heads);
  x.qk_head_dim = head_dim(config, x.num_attention_heads);
  x.v_head_dim = config.count("v_head_dim", x.qk_head_dim);
  x.qk_layernorm = config.flag("use_qk_norm", config.has_trait(kQkNorm));
  x.attention_output_gate = config.flag("attn_output_gate", config.has_trait(kOutputGate));
  x.add_qkv_bias = config.flag("attention_bias", config.has_trait(kQkvBias));
  x.sinks = config.has_trait(kSinks);
  return x;
}

void read_indexer(HfConfig& config, Mixer& x) {
  if (!config.has("index_topk")) return;
  x.index_topk = config.required("index_topk");
  x.index_n_heads = config.required("index_n_heads");
  x.index_head_dim = config.required("index_head_dim");
  x.index_trained = config.flag("dsa_indexer_use_sparse_loss", false);
}

Mixer mla(HfConfig& config) {
  Mixer x;
  x.kind = MixerKind::mla;
  x.num_attention_heads = config.required("num_attention_heads");
  x.num_query_groups = x.num_attention_heads;
  x.q_lora_rank = config.count("q_lora_rank");
  x.kv_lora_rank = config.required("kv_lora_rank");
  x.qk_head_dim = config.required("qk_nope_head_dim");
  x.qk_pos_emb_head_dim = config.required("qk_rope_head_dim");
  x.v_head_dim = config.required("v_head_dim");
  x.qk_layernorm = true;  // the LoRA norms
  read_indexer(config, x);
  return x;
}

/// head_dim is the whole query/key width, rotary part included.
Mixer csa(HfConfig& config) {
  Mixer x;
  x.kind = MixerKind::csa;
  x.num_attention_heads = config.required("num_attention_heads");
  x.num_query_groups = config.required("num_key_value_heads");
  x.qk_head_dim = x.v_head_dim = config.required("head_dim");
  x.q_lora_rank = config.required("q_lora_rank");
  x.qk_pos_emb_head_dim = config.required("qk_rope_head_dim");
  x.o_lora_rank = config.required("o_lora_rank");
  x.o_groups = config.required("o_groups");
  x.window = config.required("sliding_window");
  x.qk_layernorm = true;
  return x;
}

Mixer gated_delta_net(HfConfig& config) {
  Mixer x;
  x.kind = MixerKind::gdn;
  x.linear_num_key_heads = config.required("linear_num_key_heads");
  x.linear_num_value_heads = config.required("linear_num_value_heads");
  x.linear_key_head_dim = config.required("linear_key_head_dim");
  x.linear_value_head_dim = config.required("linear_value_head_dim");
  x.linear_conv_kernel_dim = config.required("linear_conv_kernel_dim");
  return x;
}

/// Kimi-Linear / K3: a map linear_attn_config {kda_layers (1-based), num_heads, head_dim,
/// short_conv_kernel_size}.
Mixer kimi_delta(HfConfig& config, const Node& map, std::vector<int>& layers) {
  MapReader reader(config.document(), map, "linear_attn_config", config.problems());
  Mixer x;
  x.kind = MixerKind::kda;
  x.linear_num_key_heads = x.linear_num_value_heads =
      std::max(1, reader.required_integer("num_heads"));
  x.linear_key_head_dim = x.linear_value_head_dim =
      std::max(1, reader.required_integer("head_dim"));
  x.linear_conv_kernel_dim = std::max(1, reader.required_integer("short_conv_kernel_size"));
  if (const Node* list = reader.require("kda_layers")) {
    for (const Node& item : list->items)
      layers.push_back(static_cast<int>(item.as_int().value_or(0)));
  }
  return x;
}

/// A sliding layer: the window, and other widths where the config has them (MiMo swa_*).
Mixer sliding_variant(HfConfig& config, Mixer x) {
  x.window = config.required("sliding_window");
  x.num_attention_heads = config.count("swa_num_attention_heads", x.num_attention_heads);
  x.num_query_groups = config.count("swa_num_key_value_heads", x.num_query_groups);
  x.qk_head_dim = config.count("swa_head_dim", x.qk_head_dim);
  x.v_head_dim = config.count("swa_v_head_dim", x.v_head_dim);
  return x;
}

/// A full layer of a sliding model: other widths where the config has them (Gemma-4 global_*), K
/// reused as V.
Mixer global_variant(HfConfig& config, Mixer x) {
  x.num_query_groups = config.count("num_global_key_value_heads", x.num_query_groups);
  x.qk_head_dim = config.count("global_head_dim", x.qk_head_dim);
  x.v_head_dim = config.count("global_head_dim", x.v_head_dim);
  x.k_equals_v = config.flag("attention_k_eq_v", false);
  return x;
}

enum class Reach { full, sliding, linear };

std::vector<Reach> reaches_from_words(HfConfig& config, int num_layers) {
  std::vector<Reach> reaches;
  for (const std::string& word : config.words("layer_types")) {
    if (word == "sliding_attention") {
      reaches.push_back(Reach::sliding);
    } else if (word == "linear_attention") {
      reaches.push_back(Reach::linear);
    } else {
      if (word != "full_attention" && word != "chunked_attention" && word != "attention") {
        config.complain(
            "layer_types", "'" + word + "' is not a known layer type",
            "one of full_attention, sliding_attention, chunked_attention, linear_attention");
      }
      reaches.push_back(Reach::full);
    }
  }
  check_length(config, "layer_types", reaches.size(), num_layers);
  reaches.resize(static_cast<std::size_t>(num_layers), Reach::full);
  return reaches;
}

std::vector<Reach> layer_reaches(HfConfig& config, int num_layers) {
  if (config.has("layer_types")) return reaches_from_words(config, num_layers);
  std::vector<Reach> reaches(static_cast<std::size_t>(num_layers), Reach::full);
  const std::vector<int> pattern = config.integers("hybrid_layer_pattern");  // MiMo: 1 = sliding
  if (!pattern.empty()) check_length(config, "hybrid_layer_pattern", pattern.size(), num_layers);
  const int full_every = config.count("full_attention_interval");
  const int sliding_period = config.count("sliding_window_pattern");
  const bool all_sliding = pattern.empty() && sliding_period == 0 && config.has("sliding_window") &&
                           config.flag("use_sliding_window", true);
  // Qwen2: layers from max_window_layers on slide; without it (Mistral) all do
  const int first_sliding = all_sliding ? config.count("max_window_layers", 0) : num_layers;
  for (int i = 0; i < num_layers; ++i) {
    Reach& reach = reaches[static_cast<std::size_t>(i)];
    if (full_every > 0 && (i + 1) % full_every != 0) reach = Reach::linear;
    if (sliding_period > 0 && (i + 1) % sliding_period != 0) reach = Reach::sliding;
    if (i >= first_sliding) reach = Reach::sliding;
    if (static_cast<std::size_t>(i) < pattern.size() && pattern[static_cast<std::size_t>(i)] == 1) {
      reach = Reach::sliding;
    }
  }
  return reaches;
}

/// Gqa layers of one or two reaches, or gated delta net with full attention in between.
std::vector<Mixer> gqa_layers(HfConfig& config, int num_layers) {
  const Mixer base = gqa(config);
  std::vector<Mixer> mixers;
  const std::vector<Reach> reaches = layer_reaches(config, num_layers);
  for (Reach reach : reaches) {
    if (reach == Reach::linear) {
      mixers.push_back(gated_delta_net(config));
    } else {
      mixers.push_back(reach == Reach::sliding ? sliding_variant(config, base)
                                               : global_variant(config, base));
    }
  }
  // Megatron's MTP layers copy the last decoder layer
  mixers.push_back(mixers.back());
  return mixers;
}

/// DSA: which layers compute a fresh top-k. Layer n (1-based) does iff max(n - max(offset, 1), 0)
/// mod freq = 0.
std::vector<Mixer> mla_layers(HfConfig& config, int num_layers) {
  const Mixer base = mla(config);
  std::vector<Mixer> mixers(static_cast<std::size_t>(num_layers), base);
  if (base.index_topk > 0) {
    const std::vector<std::string> types = config.words("indexer_types");
    if (config.has("indexer_types"))
      check_length(config, "indexer_types", types.size(), num_layers);
    const int every = std::max(1, config.count("index_topk_freq", 1));
    const int offset = std::max(1, config.count("index_skip_topk_offset", 1));
    for (int i = 0; i < num_layers; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool by_rule = std::max(i + 1 - offset, 0) % every == 0;
      mixers[at].index_fresh = at < types.size() ? types[at] == "full" : by_rule;
    }
  }
  mixers.push_back(base);  // MTP layers count apart, and their first is fresh
  return mixers;
}

std::vector<Mixer> csa_layers(HfConfig& config, int num_layers) {
  const Mixer base = csa(config);
  std::vector<int> ratios = config.integers("compress_ratios");
  if (!config.has("compress_ratios"))
    config.required("compress_ratios", "one ratio per layer: 0, 4 or 128");
  check_length(config, "compress_ratios", ratios.size(), num_layers);
  ratios.resize(std::max(ratios.size(), static_cast<std::size_t>(num_layers)), 0);
  if (ratios.size() == static_cast<std::size_t>(num_layers)) ratios.push_back(ratios.back());
  ratios.resize(static_cast<std::size_t>(num_layers) + 1);
  std::vector<Mixer> mixers;
  for (int ratio : ratios) {
    if (ratio != 0 && ratio != 4 && ratio != 128) {
      config.complain("compress_ratios", std::to_string(ratio) + " is not a known ratio",
                      "one of 0, 4, 128");
    }
    Mixer x = base;
    x.compress_ratio = ratio;
    if (ratio == 4) read_indexer(config, x);
    mixers.push_back(x);
  }
  return mixers;
}

const Node* linear_attn_config(const HfConfig& config) {
  const Node* map = config.scopes().front()->find("linear_attn_config");
  return map != nullptr && map->is_map() ? map : nullptr;
}

}  // namespace

Mixer import_attention(HfConfig& config) {
  if (config.has("kv_lora_rank")) return mla(config);
  return gqa(config);
}

Mixer import_mamba(HfConfig& config) {
  Mixer x;
  x.kind = MixerKind::mamba;
  x.mamba_num_heads = config.required("mamba_num_heads");
  x.mamba_head_dim = config.required("mamba_head_dim");
  x.mamba_state_dim = config.required("ssm_state_size");
  x.mamba_num_groups = config.required("n_groups");
  x.mamba_conv_kernel = config.count("conv_kernel", x.mamba_conv_kernel);
  return x;
}

std::vector<Mixer> import_mixers(HfConfig& config, int num_layers) {
  if (config.has("o_lora_rank") || config.has("compress_ratios"))
    return csa_layers(config, num_layers);
  std::vector<Mixer> mixers =
      config.has("kv_lora_rank") ? mla_layers(config, num_layers) : gqa_layers(config, num_layers);
  if (const Node* map = linear_attn_config(config)) {
    std::vector<int> layers;
    const Mixer delta = kimi_delta(config, *map, layers);
    for (int layer : layers) {
      if (layer >= 1 && layer <= num_layers) mixers[static_cast<std::size_t>(layer - 1)] = delta;
    }
  }
  return mixers;
}

}  // namespace moecast
