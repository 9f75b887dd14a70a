#include "layout/megatron_model.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "core/document.hpp"
#include "layout/layer_pattern.hpp"
#include "moecast/model_io.hpp"

namespace moecast {
namespace {

using Tree = nlohmann::ordered_json;

std::string option(const MegatronInput& input, const std::string& name) {
  const auto found = input.other.find(name);
  return found == input.other.end() ? "" : found->second;
}
int number_option(const MegatronInput& input, const std::string& name, int fallback) {
  const std::string text = option(input, name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : fallback;
}

/// Megatron-LM's and Megatron-Core's defaults of what is not given (arguments.py validate_args,
/// transformer_config.py).
int ffn_width(const MegatronInput& input) {
  const MegatronConfig& c = input.config;
  if (c.ffn_hidden_size) return *c.ffn_hidden_size;
  const long long four = 4LL * c.hidden_size;
  if (input.flavour == Flavour::megatron_lm && c.swiglu)
    return static_cast<int>(four * 2 / 3 / 64 * 64);
  return static_cast<int>(four);
}

Mixer attention(const MegatronInput& input) {
  const MegatronConfig& c = input.config;
  Mixer x;
  x.kind = c.multi_latent_attention ? MixerKind::mla : MixerKind::gqa;
  x.num_attention_heads = c.num_attention_heads;
  x.num_query_groups = c.num_attention_heads;
  x.qk_layernorm = c.qk_layernorm;
  if (c.multi_latent_attention) {
    x.q_lora_rank = c.q_lora_rank.value_or(0);
    x.kv_lora_rank = c.kv_lora_rank.value_or(32);
    x.qk_head_dim = c.qk_head_dim.value_or(128);
    x.qk_pos_emb_head_dim = c.qk_pos_emb_head_dim.value_or(64);
    x.v_head_dim = c.v_head_dim.value_or(128);
    return x;
  }
  const bool grouped = c.group_query_attention || input.flavour == Flavour::bridge;
  if (grouped) x.num_query_groups = c.num_query_groups.value_or(c.num_attention_heads);
  x.qk_head_dim = c.kv_channels.value_or(c.hidden_size / std::max(1, c.num_attention_heads));
  x.v_head_dim = x.qk_head_dim;
  x.attention_output_gate = c.attention_output_gate;
  x.add_qkv_bias = c.add_qkv_bias || c.add_bias_linear;
  x.sinks = c.softmax_type == "learnable"_w;
  return x;
}

/// "(127,0)" or "127,0": tokens before and after; the window is both and the token itself.
int window_of(std::string text) {
  std::erase_if(text,
                [](char c) { return std::string_view("()[] ").find(c) != std::string_view::npos; });
  int before = 0, after = 0;
  const char* end = text.data() + text.size();
  const auto [comma, error] = std::from_chars(text.data(), end, before);
  if (error != std::errc() || comma == end || before < 0 || before > (1 << 24)) return 0;
  std::from_chars(comma + 1, end, after);
  return after < 0 || after > (1 << 24) ? 0 : before + after + 1;
}

/// Which of Megatron's layers attend to a window only: the layer's number is no multiple of the
/// frequency, or its entry of the list is 1. Ref: transformer/utils.py is_layer_window_attention.
std::vector<bool> windowed_layers(const MegatronInput& input, std::size_t layers) {
  std::vector<bool> windowed(layers, true);
  const auto pattern = parse_layer_pattern(option(input, "window_attn_skip_freq"));
  if (!pattern || pattern->empty()) return windowed;
  for (std::size_t i = 0; i < layers; ++i) {
    windowed[i] = pattern->size() == 1
                      ? (*pattern)[0] > 0 && (i + 1) % static_cast<std::size_t>((*pattern)[0]) != 0
                      : i < pattern->size() && (*pattern)[i] != 0;
  }
  return windowed;
}

bool is_moe_layer(const std::vector<int>& freq, std::size_t layer) {
  if (freq.size() == 1) return freq[0] > 0 && layer % static_cast<std::size_t>(freq[0]) == 0;
  return layer < freq.size() && freq[layer] != 0;
}

void add_layers(const MegatronInput& input, ModelSpec& m) {
  const MegatronConfig& c = input.config;
  const auto layers = static_cast<std::size_t>(c.num_layers);
  m.mixers = {Mixer{}, attention(input)};
  std::vector<bool> windowed(layers, false);
  if (const int window = window_of(option(input, "window_size")); window > 0) {
    windowed = windowed_layers(input, layers);
    const bool first = !windowed.empty() && windowed[0];  // mixers in the order of their use
    m.mixers.push_back(m.mixers[1]);
    m.mixers[first ? 1 : 2].window = window;
    if (!first) windowed.flip();
  }
  const bool two = m.mixers.size() > 2;
  const int dense = number_option(input, "first_k_dense_replace", -1);
  for (std::size_t i = 0; i < layers; ++i) {
    LayerKind layer;
    layer.mixer = two && !windowed[i] ? 2 : 1;
    bool moe = c.num_experts.value_or(0) > 0 && is_moe_layer(c.moe_layer_freq, i);
    if (dense >= 0 && c.num_experts) moe = i >= static_cast<std::size_t>(dense);
    layer.ffn = moe ? FfnKind::moe : FfnKind::dense;
    m.layers.push_back(layer);
  }
  m.mtp_num_layers = std::max(0, c.mtp_num_layers.value_or(0));
  m.mtp_use_repeated_layer = option(input, "mtp_use_repeated_layer") == "true";
  if (m.mtp_num_layers > 0) m.mtp_pattern = {m.layers.back()};
}

void add_experts(const MegatronInput& input, ModelSpec& m) {
  const MegatronConfig& c = input.config;
  if (c.num_experts.value_or(0) < 1) return;
  MoeSpec& e = m.moe;
  e.num_moe_experts = *c.num_experts;
  e.moe_router_topk = c.moe_router_topk;
  e.moe_ffn_hidden_size = c.moe_ffn_hidden_size.value_or(m.ffn_hidden_size);
  e.moe_shared_expert_intermediate_size = c.moe_shared_expert_intermediate_size.value_or(0);
  e.moe_shared_expert_gate = option(input, "moe_shared_expert_gate") == "true";
  e.moe_latent_size = c.moe_latent_size.value_or(0);
  e.moe_router_num_groups = c.moe_router_num_groups.value_or(0);
  e.moe_router_group_topk = c.moe_router_group_topk.value_or(0);
  e.sigmoid_router =
      c.moe_router_score_function == "sigmoid"_w || c.moe_router_score_function == "sqrtsoftplus"_w;
  e.expert_bias = c.moe_router_enable_expert_bias;
  e.add_bias = c.add_bias_linear;
}

/// Keys of a model's file that differ, dotted.
void differ(const Tree& a, const Tree& b, const std::string& path, std::vector<std::string>& out) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : a.items()) keys.push_back(key);
  for (const auto& [key, value] : b.items())
    if (!a.contains(key)) keys.push_back(key);
  for (const std::string& key : keys) {
    const std::string full = path.empty() ? key : path + "." + key;
    const Tree x = a.value(key, Tree()), y = b.value(key, Tree());
    if (x.is_object() && y.is_object()) {
      differ(x, y, full, out);
    } else if (x != y) {
      out.push_back(full);
    }
  }
}

/// Without the words that say nothing of the shape. A dense width that no layer uses says nothing
/// either, and a vocabulary that the options do not state is the model's.
Tree comparable(const ModelSpec& m, bool with_vocabulary) {
  Tree tree = model_to_json(m);
  for (const char* key :
       {"schema", "name", "architecture", "warnings", "make_vocab_size_divisible_by"})
    tree.erase(key);
  if (!with_vocabulary) tree.erase("vocab_size");
  const bool dense = std::any_of(m.layers.begin(), m.layers.end(),
                                 [](const LayerKind& l) { return l.ffn == FfnKind::dense; });
  if (!dense) tree.erase("ffn_hidden_size");
  for (auto& [name, mixer] : tree["mixers"].items())
    if (mixer.value("kind", "") == "mla") mixer.erase("num_query_groups");
  return tree;
}

/// What may differ and leave time and memory nearly the same.
bool is_detail(const std::string& key) {
  const std::string leaf = key.substr(key.rfind('.') + 1);
  for (const char* detail :
       {"qk_layernorm", "expert_bias", "sigmoid_router", "moe_router_num_groups",
        "moe_router_group_topk", "moe_shared_expert_gate", "add_qkv_bias", "mtp_pattern",
        "untie_embeddings_and_output_weights", "layernorm", "add_bias_linear", "sinks"})
    if (leaf == detail) return true;
  return false;
}

/// Hugging Face keys by which a cut model differs from the whole one.
Tree cut_overrides(const ModelSpec& asked, const ModelSpec& shipped) {
  Tree overrides = Tree::object();
  if (asked.layers.size() != shipped.layers.size())
    overrides["num_hidden_layers"] = asked.layers.size();
  if (asked.moe.num_moe_experts != shipped.moe.num_moe_experts && asked.moe.num_moe_experts > 0)
    overrides["n_routed_experts"] = asked.moe.num_moe_experts;
  if (asked.mtp_num_layers != shipped.mtp_num_layers)
    overrides["num_nextn_predict_layers"] = asked.mtp_num_layers;
  const auto dense = [](const ModelSpec& m) {
    const auto first = std::find_if(m.layers.begin(), m.layers.end(),
                                    [](const LayerKind& l) { return l.ffn == FfnKind::moe; });
    return first - m.layers.begin();
  };
  if (asked.moe.num_moe_experts > 0 && dense(asked) != dense(shipped))
    overrides["first_k_dense_replace"] = dense(asked);
  if (asked.vocab_size > 0 && asked.vocab_size != shipped.vocab_size)
    overrides["vocab_size"] = asked.vocab_size;
  return overrides;
}

/// Every shipped model, read once for a data folder.
const std::vector<ModelSpec>& shipped_specs() {
  static std::mutex mutex;
  static std::map<std::string, std::vector<ModelSpec>> read;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = read.try_emplace(data_dir().string());
  if (is_new) {
    for (const std::string& name : shipped_models()) {
      Result<ModelSpec> spec = load_model(name, Tree::object(), "");
      if (!spec) continue;
      found->second.push_back(spec.take());
      found->second.back().name = name;
    }
  }
  return found->second;
}

std::optional<ModelMatch> match_one(const ModelSpec& asked, const ModelSpec& shipped) {
  if (shipped.hidden_size != asked.hidden_size) return std::nullopt;
  ModelMatch match;
  match.name = shipped.name;
  match.overrides = cut_overrides(asked, shipped);
  if (match.overrides.contains("vocab_size")) return std::nullopt;  // another model
  ModelSpec candidate = shipped;
  if (!match.overrides.empty()) {
    Result<ModelSpec> cut = load_model(shipped.name, match.overrides, "");
    if (!cut) return std::nullopt;
    candidate = cut.take();
  }
  const bool vocabulary = asked.vocab_size > 0;
  differ(comparable(asked, vocabulary), comparable(candidate, vocabulary), "", match.differences);
  const bool same = std::all_of(match.differences.begin(), match.differences.end(), is_detail);
  return same ? std::optional(match) : std::nullopt;
}

std::string letters(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace

std::optional<ModelSpec> model_of(const MegatronInput& input) {
  const MegatronConfig& c = input.config;
  constexpr int kMostLayers = 10'000;
  const bool other_layers = c.experimental_attention_variant || c.enable_hyper_connections ||
                            !option(input, "hybrid_override_pattern").empty() ||
                            !option(input, "hybrid_layer_pattern").empty();
  if (c.num_layers < 1 || c.num_layers > kMostLayers || c.hidden_size < 1 ||
      c.num_attention_heads < 1 || other_layers)
    return std::nullopt;
  ModelSpec m;
  m.architecture = "megatron";
  m.hidden_size = c.hidden_size;
  m.ffn_hidden_size = ffn_width(input);
  m.vocab_size = c.vocab_size.value_or(number_option(input, "padded_vocab_size", 0));
  m.make_vocab_size_divisible_by = number_option(input, "make_vocab_size_divisible_by", 128);
  m.gated_linear_unit = c.swiglu || c.quick_geglu;
  m.untie_embeddings_and_output_weights = c.untie_embeddings_and_output_weights;
  m.add_bias_linear = c.add_bias_linear;
  m.layernorm = c.normalization == "LayerNorm"_w;
  add_layers(input, m);
  add_experts(input, m);
  return m;
}

const ModelSpec* shipped_model(std::string_view name) {
  const std::vector<ModelSpec>& specs = shipped_specs();
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const ModelSpec& m) { return m.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

std::optional<ModelMatch> match_shipped_model(const ModelSpec& model) {
  std::optional<ModelMatch> best;
  const auto weight = [](const ModelMatch& m) {
    return m.differences.size() * 16 + m.overrides.size();
  };
  for (const ModelSpec& shipped : shipped_specs()) {
    auto match = match_one(model, shipped);
    if (match && (!best || weight(*match) < weight(*best))) best = std::move(match);
  }
  return best;
}

std::string model_of_recipe(std::string_view recipe) {
  for (const std::string_view word : {"_pretrain", "_sft", "_lora", "_config"})
    recipe = recipe.substr(0, recipe.find(word));
  const std::string wanted = letters(recipe);
  std::string found;
  for (const std::string& name : shipped_models()) {
    if (letters(name) == wanted) return name;
    if (wanted.size() > 4 && letters(name).starts_with(wanted)) {
      if (!found.empty()) return "";  // several
      found = name;
    }
  }
  return found;
}

std::vector<std::pair<std::string, std::string>> more_model_options(const ModelSpec& m) {
  std::vector<std::pair<std::string, std::string>> options;
  if (m.make_vocab_size_divisible_by != 128) {
    options.emplace_back("--make-vocab-size-divisible-by",
                         std::to_string(m.make_vocab_size_divisible_by));
  }
  if (m.moe.moe_shared_expert_gate) options.emplace_back("--moe-shared-expert-gate", "");
  if (m.mtp_use_repeated_layer) options.emplace_back("--mtp-use-repeated-layer", "");
  int window = 0;
  std::string skips;
  for (const LayerKind& layer : m.layers) {
    const int w = m.mixers[layer.mixer].window;
    window = std::max(window, w);
    skips += fmt::format("{}{}", skips.empty() ? "" : ",", w > 0 ? 1 : 0);
  }
  if (window == 0) return options;
  options.emplace_back("--window-size", fmt::format("{},0", window - 1));
  if (skips.find('0') != std::string::npos)
    options.emplace_back("--window-attn-skip-freq", "[" + skips + "]");
  return options;
}

}  // namespace moecast
