#pragma once
/// The words that Megatron's options take, as one vocabulary: a Word is one byte, a set of Words
/// one mask, so that rules compare them as fast as enums. "full"_w does not compile for a word that
/// is not listed.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moecast {

/// [0] = not set. Members of lists come first: their index is their bit in Words.
inline constexpr auto kMegatronWords = std::to_array<std::string_view>(
    {"",
     // recompute_modules, offload_modules
     "core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts",
     "gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc", "attn_proj", "expert_fc1", "fused_group_mlp",
     "attn_norm", "mlp_norm", "qkv_linear",
     // cuda_graph_modules
     "attn", "moe_router", "moe_preprocess", "mamba", "full", "full_iteration",
     // cp_comm_type, moe_router_load_balancing_type
     "p2p", "all_gather", "a2a", "a2a+p2p", "aux_loss", "seq_aux_loss", "global_aux_loss",
     "sinkhorn", "none", "quantile_balancing",
     // single choices
     "selective", "uniform", "block", "local", "transformer_engine", "inference_optimized",
     "allgather", "alltoall", "flex", "deepep", "hybridep", "ncclep", "fp32", "fp64", "bf16",
     "fp16", "fp8", "e4m3", "hybrid", "e2m1", "delayed", "tensorwise", "blockwise", "mxfp8",
     "nvfp4", "custom", "adam", "sgd", "muon", "dist_muon", "torch", "torch_dist", "torch_dcp",
     "fsdp_dtensor", "zarr", "no_shard", "optim", "optim_grads", "optim_grads_params", "softmax",
     "sigmoid", "sqrtsoftplus", "rope", "yarn", "mrope", "learned_absolute", "relative",
     "LayerNorm", "RMSNorm", "vanilla", "off-by-one", "learnable", "native", "te",
     "gated_delta_net", "dsa", "nccl", "ucc", "linear", "off", "on", "single", "cyclic",
     "external"});
inline constexpr std::uint8_t kOtherWord = 255;
inline constexpr int kOtherBit = 63;

struct Word {
  std::uint8_t id = 0;
  constexpr bool operator==(const Word&) const = default;
  /// True when the option is set at all.
  constexpr explicit operator bool() const { return id != 0; }
};

constexpr Word find_word(std::string_view text) {
  for (std::size_t i = 0; i < kMegatronWords.size(); ++i) {
    if (kMegatronWords[i] == text) return {static_cast<std::uint8_t>(i)};
  }
  return {kOtherWord};
}
/// The text of a word; a word outside the vocabulary has none here (MegatronConfig keeps it).
constexpr std::string_view text_of(Word w) {
  return w.id == kOtherWord ? std::string_view("?") : kMegatronWords[w.id];
}

inline namespace literals {
consteval Word operator""_w(const char* text, std::size_t length) {
  const Word w = find_word({text, length});
  if (w.id == kOtherWord) throw "not a word of Megatron's options";
  return w;
}
}  // namespace literals

/// A list of words: which, and how many were written.
struct Words {
  std::uint64_t bits = 0;
  std::uint16_t count = 0;
  bool given = false;  ///< an empty list differs from no list
  constexpr Words() = default;
  constexpr Words(std::initializer_list<Word> words) {
    for (const Word w : words) add(w);
  }
  constexpr Words& add(Word w) {
    bits |= std::uint64_t{1} << (w.id < kOtherBit ? w.id : kOtherBit);
    ++count;
    given = true;
    return *this;
  }
  constexpr void remove(Word w) { bits &= ~(std::uint64_t{1} << w.id); }
  [[nodiscard]] constexpr bool has(Word w) const { return (bits >> w.id & 1) != 0; }
  [[nodiscard]] constexpr bool has_other() const { return (bits >> kOtherBit & 1) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits == 0; }
  /// Words that are not among `allowed`.
  [[nodiscard]] constexpr bool outside(Words allowed) const { return (bits & ~allowed.bits) != 0; }
  constexpr bool operator==(const Words&) const = default;
};
std::vector<std::string> texts_of(Words words);

}  // namespace moecast
