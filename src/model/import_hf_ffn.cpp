#include <algorithm>
#include <charconv>

#include "model/hf_fields.hpp"
#include "model/import_hf.hpp"

namespace moecast {
namespace {

/// intermediate_size is the expert width where there is no moe_intermediate_size (Mixtral, GPT-OSS,
/// OLMoE, Llama-4, ...).
int expert_width(HfConfig& config) {
  if (config.has("moe_intermediate_size")) return config.required("moe_intermediate_size");
  return config.required("intermediate_size");
}

int shared_width(HfConfig& config, int expert) {
  if (config.has_trait(kParallelDense)) return config.required("intermediate_size");
  if (config.has("moe_shared_expert_intermediate_size"))
    return config.count("moe_shared_expert_intermediate_size");
  const long long width = static_cast<long long>(config.count(
                              "n_shared_experts", config.has_trait(kOneShared) ? 1 : 0)) *
                          expert;
  if (width > 1'000'000'000) config.complain("n_shared_experts", "is out of range");
  return static_cast<int>(std::min(width, 1'000'000'000LL));
}

void read_router(HfConfig& config, MoeSpec& moe) {
  moe.moe_router_num_groups = config.count("n_group");
  moe.moe_router_group_topk = config.count("topk_group");
  if (moe.moe_router_num_groups <= 1) moe.moe_router_num_groups = moe.moe_router_group_topk = 0;
  const std::string scoring = config.text("scoring_func");
  moe.sigmoid_router = scoring.empty() ? config.has_trait(kSigmoid) : scoring != "softmax";
  const std::string method = config.text("topk_method");
  const bool by_method = method.empty() ? config.has_trait(kExpertBias) : method == "noaux_tc";
  moe.expert_bias = config.flag("use_routing_bias", by_method);
}

std::vector<FfnKind> kinds_from_words(HfConfig& config, int num_layers) {
  std::vector<FfnKind> kinds;
  for (const std::string& word : config.words("mlp_layer_types")) {
    if (word != "dense" && word != "sparse" && word != "moe") {
      config.complain("mlp_layer_types", "'" + word + "' is not a known layer type",
                      "one of dense, sparse");
    }
    kinds.push_back(word == "dense" ? FfnKind::dense : FfnKind::moe);
  }
  check_length(config, "mlp_layer_types", kinds.size(), num_layers);
  kinds.resize(static_cast<std::size_t>(num_layers), FfnKind::moe);
  const auto leading = std::find(kinds.begin(), kinds.end(), FfnKind::moe) - kinds.begin();
  if (config.has("first_k_dense_replace") &&
      std::min(config.count("first_k_dense_replace"), num_layers) != leading) {
    config.complain("first_k_dense_replace", "contradicts mlp_layer_types, which starts with " +
                                                 std::to_string(leading) + " dense layers");
  }
  return kinds;
}

/// Step: "4,5,6,..." or a list of 0-based layer numbers.
std::vector<int> enumerated_layers(HfConfig& config) {
  const Node* node = config.find("moe_layers_enum");
  if (node->is_sequence()) return config.integers("moe_layers_enum");
  std::vector<int> layers;
  const std::string text = config.text("moe_layers_enum");
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc()) {
      config.complain("moe_layers_enum", "must be layer numbers separated by commas");
      break;
    }
    layers.push_back(value);
    at = next;
    while (at < end && (*at == ',' || *at == ' ')) ++at;
  }
  return layers;
}

std::vector<FfnKind> kinds_where(int num_layers, auto is_moe) {
  std::vector<FfnKind> kinds;
  for (int i = 0; i < num_layers; ++i) kinds.push_back(is_moe(i) ? FfnKind::moe : FfnKind::dense);
  return kinds;
}

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Rules that count: DeepSeek, Qwen, Llama-4, ERNIE; absent keys leave every layer MoE.
std::vector<FfnKind> kinds_by_rule(HfConfig& config, int num_layers) {
  const int first = config.count("first_k_dense_replace");
  const int freq = std::max(1, config.count("moe_layer_freq", 1));
  const int qwen_step = config.count("decoder_sparse_step", 1);
  const std::vector<int> dense_only = config.integers("mlp_only_layers");
  const int llama_step = std::max(1, config.count("interleave_moe_layer_step", 1));
  const int start = config.count("moe_layer_start_index"),
            end = config.count("moe_layer_end_index", num_layers - 1);
  const int interval = std::max(1, config.count("moe_layer_interval", 1));
  return kinds_where(num_layers, [&](int i) {
    const bool deepseek = i >= first && i % freq == 0;
    const bool qwen = qwen_step > 0 && (i + 1) % qwen_step == 0 && !contains(dense_only, i);
    const bool ernie = i >= start && i <= end && (i + 1) % interval == 0;
    return deepseek && qwen && ernie && (i + 1) % llama_step == 0;
  });
}

}  // namespace

MoeSpec import_moe(HfConfig& config) {
  MoeSpec moe;
  if (!config.has("n_routed_experts")) return moe;
  moe.num_moe_experts = config.count("n_routed_experts");
  if (moe.num_moe_experts == 0) {
    if (config.count("num_experts_per_tok") > 0) {
      config.complain("n_routed_experts", "is 0 but num_experts_per_tok is not",
                      "drop both for a dense model");
    }
    return moe;
  }
  moe.moe_router_topk = config.required("num_experts_per_tok");
  moe.moe_ffn_hidden_size = expert_width(config);
  moe.moe_shared_expert_intermediate_size = shared_width(config, moe.moe_ffn_hidden_size);
  moe.moe_shared_expert_gate =
      moe.moe_shared_expert_intermediate_size > 0 && config.has_trait(kSharedGate);
  moe.moe_latent_size = config.count("moe_latent_size");
  moe.add_bias = config.has_trait(kBiases);
  read_router(config, moe);
  return moe;
}

int dense_ffn_width(HfConfig& config) {
  if (config.has("intermediate_size_mlp")) return config.required("intermediate_size_mlp");
  return config.required("intermediate_size");
}

std::vector<FfnKind> import_ffn_kinds(HfConfig& config, int num_layers) {
  if (config.count("n_routed_experts") == 0) {
    return std::vector<FfnKind>(static_cast<std::size_t>(num_layers), FfnKind::dense);
  }
  if (config.has("mlp_layer_types")) return kinds_from_words(config, num_layers);
  if (config.has("moe_layers_enum")) {
    const std::vector<int> layers = enumerated_layers(config);
    return kinds_where(num_layers, [&](int i) { return contains(layers, i); });
  }
  const Node* freq = config.find("moe_layer_freq");
  if (freq != nullptr && freq->is_sequence()) {
    std::vector<int> ones = config.integers("moe_layer_freq");
    check_length(config, "moe_layer_freq", ones.size(), num_layers);
    ones.resize(static_cast<std::size_t>(num_layers), 1);
    return kinds_where(num_layers, [&](int i) { return ones[static_cast<std::size_t>(i)] != 0; });
  }
  return kinds_by_rule(config, num_layers);
}

}  // namespace moecast
