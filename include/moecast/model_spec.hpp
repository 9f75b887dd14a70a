#pragma once
/// What a model is: shapes only, no hardware, no layout. Names are Megatron-Core's
/// TransformerConfig terms. A model is a list of layers; a layer is a token mixer (attention,
/// Mamba, ...) and/or a feed-forward part. Hybrid models (Nemotron "MEM*E") have layers with only
/// one of the two. Variants of a mixer (sliding/full, other KV-head counts, other compression
/// ratio) are separate entries of `mixers`, and a layer refers to one by index.
#include <cstdint>
#include <string>
#include <vector>

namespace moecast {

enum class MixerKind : std::uint8_t {
  none,
  gqa,    ///< multi-head / grouped-query attention, full or sliding window
  mla,    ///< multi-latent attention (DeepSeek), optionally with a DSA indexer
  csa,    ///< DeepSeek-V4 compressed sparse attention
  gdn,    ///< gated delta net
  kda,    ///< Kimi delta attention
  mamba,  ///< Mamba-2
};
enum class FfnKind : std::uint8_t { none, dense, moe };

struct Mixer {
  MixerKind kind = MixerKind::none;
  // gqa, mla, csa
  int num_attention_heads = 0;
  int num_query_groups = 0;  ///< KV heads (gqa; csa 1)
  int qk_head_dim = 0;       ///< gqa: kv_channels; mla: qk_nope; csa: head_dim
  int v_head_dim = 0;
  int window = 0;  ///< sliding window in tokens (Megatron's w0+w1+1); 0 = full causal
  bool qk_layernorm = false;
  bool attention_output_gate = false;
  bool add_qkv_bias = false;
  bool sinks = false;       ///< learnt softmax sinks (GPT-OSS)
  bool k_equals_v = false;  ///< K projection reused as V (Gemma-4 global layers): no V weights
  // mla, csa
  int q_lora_rank = 0;  ///< 0 = no q LoRA
  int kv_lora_rank = 0;
  int qk_pos_emb_head_dim = 0;
  int o_lora_rank = 0;     ///< csa
  int o_groups = 0;        ///< csa
  int compress_ratio = 0;  ///< csa: 0, 4 or 128
  // DSA / CSA indexer
  int index_n_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;
  bool index_trained =
      false;  ///< the indexer has its own (sparse) loss: trained and taught by the attention scores
  bool index_fresh = true;  ///< false: reuses the top-k of an earlier layer (GLM-5.2 "shared")
  // gdn, kda
  int linear_num_key_heads = 0;
  int linear_num_value_heads = 0;
  int linear_key_head_dim = 0;
  int linear_value_head_dim = 0;
  int linear_conv_kernel_dim = 0;
  // mamba
  int mamba_num_heads = 0;
  int mamba_head_dim = 0;
  int mamba_state_dim = 0;
  int mamba_num_groups = 0;
  int mamba_conv_kernel = 4;

  bool operator==(const Mixer&) const = default;
};

struct LayerKind {
  std::uint8_t mixer = 0;  ///< index into ModelSpec::mixers (entry 0 is always MixerKind::none)
  FfnKind ffn = FfnKind::none;
  bool operator==(const LayerKind&) const = default;
};

struct MoeSpec {
  int num_moe_experts = 0;
  int moe_router_topk = 0;
  int moe_ffn_hidden_size = 0;
  int moe_shared_expert_intermediate_size = 0;  ///< total over shared experts; 0 = none
  bool moe_shared_expert_gate = false;
  int moe_latent_size = 0;  ///< 0 = experts work on hidden_size
  int moe_router_num_groups = 0;
  int moe_router_group_topk = 0;
  bool sigmoid_router = false;  ///< sigmoid/sqrtsoftplus scores; else softmax
  bool expert_bias = false;     ///< aux-loss-free balancing bias (fp32 [E] buffer + token counter)
  bool add_bias = false;        ///< experts' linears have biases (GPT-OSS)
};

struct ModelSpec {
  std::string name;
  std::string architecture;  ///< HF "architectures"[0], or "megatron"
  int hidden_size = 0;
  int ffn_hidden_size = 0;        ///< dense MLP width
  int vocab_size = 0;             ///< unpadded
  bool gated_linear_unit = true;  ///< 3 matrices; false = 2 (relu2)
  bool untie_embeddings_and_output_weights = true;
  bool add_bias_linear = false;
  bool layernorm = false;     ///< LayerNorm (4h) instead of RMSNorm (2h)
  bool hybrid = false;        ///< hybrid layer pattern: Megatron counts its FLOPs apart
  int hyper_connections = 0;  ///< DeepSeek-V4 hc_mult; 0 = none
  int make_vocab_size_divisible_by = 128;
  MoeSpec moe;
  std::vector<Mixer> mixers;            ///< [0] is none
  std::vector<LayerKind> layers;        ///< decoder layers, in order
  int mtp_num_layers = 0;               ///< MTP depths
  std::vector<LayerKind> mtp_pattern;   ///< layers of ONE depth (usually one; Nemotron "*E" two)
  bool mtp_use_repeated_layer = false;  ///< one set of weights for all depths
  std::vector<std::string>
      warnings;  ///< what costs time or memory and is not modelled, with its effect
};

/// Parameters in elements (no padding of the vocabulary). Ref: facts in docs/architecture.md
/// "Parameters".
struct ParamCount {
  double total = 0;   ///< main model with embedding and output layer, without MTP
  double active = 0;  ///< per token: routed experts scaled by topk / E; embedding and head included
  double active_without_input_embedding = 0;
  double mtp = 0;  ///< MTP layers' own weights (not in total)
};
ParamCount count_params(const ModelSpec& m);

/// Model FLOPs per token by Megatron-Bridge's convention (flop_utils.py): forward + backward of one
/// token, no recompute, no padding, causal half. tp enters through the padded vocabulary.
double model_flops_per_token(const ModelSpec& m, int seq_length, int tp);

/// ceil(V / (divisor * tp)) * divisor * tp
int padded_vocab_size(const ModelSpec& m, int tp);

}  // namespace moecast
