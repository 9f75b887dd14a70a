#include "model/hf_architectures.hpp"

#include <string>

namespace moecast {
namespace {

// Ref: the modeling_*.py of each in huggingface/transformers, and Megatron-Bridge's bridges
// (models/*/..._bridge.py).
constexpr HfArchitecture kArchitectures[] = {
    {"llama", "Llama", kMultiHead},
    {"mistral", "Mistral", 0},
    {"llama4", "Llama4", kOneShared | kSigmoid},
    {"mixtral", "Mixtral", 0},
    {"qwen2", "Qwen2", kQkvBias},
    {"qwen2_moe", "Qwen2Moe", kQkvBias | kSharedGate},
    {"qwen3", "Qwen3", kQkNorm},
    {"qwen3_moe", "Qwen3Moe", kQkNorm},
    {"qwen3_vl_moe", "Qwen3VLMoe", kQkNorm},
    {"qwen3_omni_moe", "Qwen3OmniMoe", kQkNorm},
    {"qwen3_omni_moe_thinker", "Qwen3OmniMoeThinker", kQkNorm},
    {"qwen3_next", "Qwen3Next", kQkNorm | kOutputGate | kSharedGate},
    {"qwen3_5_moe", "Qwen3_5Moe", kQkNorm | kOutputGate | kSharedGate},
    {"deepseek_v2", "DeepseekV2", 0},
    {"deepseek_v3", "DeepseekV3", 0},
    {"deepseek_v32", "DeepseekV32", 0},
    {"deepseek_v4", "DeepseekV4", 0},
    {"kimi_k2", "", 0},
    {"kimi_k25", "KimiK25", 0},
    {"kimi_linear", "KimiLinear", kSigmoid | kExpertBias},
    {"kimi_k3", "KimiK3", kSigmoid | kExpertBias},
    {"glm4_moe", "Glm4Moe", kSigmoid | kExpertBias},
    {"glm4_moe_lite", "Glm4MoeLite", kSigmoid | kExpertBias},
    {"glm", "", kSigmoid | kExpertBias},
    {"glm_moe_dsa", "GlmMoeDsa", 0},
    {"gpt_oss", "GptOss", kBiases | kSinks},
    {"gemma4", "Gemma4", kQkNorm | kParallelDense | kTied},
    {"grok-1", "Grok1Model", kTied},
    {"hunyuan", "HunYuan", kQkNorm | kTied},
    {"hunyuan_v1_moe", "HunYuanMoEV1", kQkNorm | kTied},
    {"bailing_moe", "BailingMoe", 0},
    {"bailing_moe_v2", "BailingMoeV2", kSigmoid | kExpertBias},
    {"minimax_m2", "MiniMaxM2", 0},
    {"minimax_m3", "MiniMaxM3", 0},
    {"nemotron_h", "NemotronH", kSigmoid | kExpertBias | kRepeatedMtp},
    {"olmoe", "Olmoe", kQkNorm | kMultiHead},
    {"phimoe", "PhiMoE", kLayerNorm},
    {"dbrx", "Dbrx", kLayerNorm},
    {"ernie4_5_moe", "Ernie4_5_Moe", kExpertBias | kTied},
    {"dots1", "Dots1", kQkNorm | kSigmoid | kExpertBias},
    {"mimo_v2_flash", "MiMoV2Flash", kSinks | kSigmoid | kExpertBias},
    {"step3", "Step3", 0},
    {"step3p7", "Step3p7", kSigmoid},
};

std::string without_suffix(std::string_view text,
                           std::initializer_list<std::string_view> suffixes) {
  for (std::string_view suffix : suffixes) {
    if (text.ends_with(suffix)) return std::string(text.substr(0, text.size() - suffix.size()));
  }
  return std::string(text);
}

}  // namespace

const HfArchitecture* find_architecture(std::string_view model_type, std::string_view class_name) {
  const std::string type = without_suffix(model_type, {"_text"});
  const std::string name = without_suffix(class_name, {"ForCausalLM", "ForConditionalGeneration"});
  for (const HfArchitecture& a : kArchitectures) {
    if (!type.empty() && a.model_type == type) return &a;
  }
  for (const HfArchitecture& a : kArchitectures) {
    if (!name.empty() && a.class_name == name) return &a;
  }
  return nullptr;
}

}  // namespace moecast
