#pragma once
/// What a HF architecture implies without saying it in its config.json.
#include <cstdint>
#include <string_view>

namespace moecast {

enum HfTrait : std::uint32_t {
  kQkNorm = 1u << 0,
  kOutputGate = 1u << 1,  ///< doubled Q projection
  kSharedGate = 1u << 2,  ///< sigmoid gate on the shared expert
  kQkvBias = 1u << 3,     ///< default of attention_bias
  kBiases = 1u << 4,      ///< attention_bias and experts' biases on all linears (GPT-OSS)
  kSinks = 1u << 5,
  kSigmoid = 1u << 6,        ///< router scores where scoring_func is not given
  kExpertBias = 1u << 7,     ///< aux-loss-free bias where topk_method is not given
  kOneShared = 1u << 8,      ///< one shared expert of the routed width, not in the config (Llama-4)
  kParallelDense = 1u << 9,  ///< dense MLP beside the experts in every layer (Gemma-4)
  kTied = 1u << 10,          ///< default of tie_word_embeddings
  kRepeatedMtp = 1u << 11,   ///< one set of MTP weights for all depths
  kMultiHead = 1u << 12,     ///< num_key_value_heads defaults to num_attention_heads
  kLayerNorm = 1u << 13,
};

struct HfArchitecture {
  std::string_view model_type;  ///< without a trailing "_text"
  std::string_view
      class_name;  ///< "architectures"[0] without ForCausalLM / ForConditionalGeneration
  std::uint32_t traits = 0;
  [[nodiscard]] bool has(HfTrait t) const { return (traits & t) != 0; }
};

/// By model_type, else by class name, else nullptr.
const HfArchitecture* find_architecture(std::string_view model_type, std::string_view class_name);

}  // namespace moecast
