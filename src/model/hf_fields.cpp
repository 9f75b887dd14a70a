#include "model/hf_fields.hpp"

#include <algorithm>

namespace moecast {
namespace {

constexpr HfField kFields[] = {
    {{"hidden_size", "d_model", "n_embd"}},
    {{"num_hidden_layers", "n_layers", "num_layers"}},
    {{"vocab_size"}},
    {{"intermediate_size", "ffn_hidden_size"}},
    {{"intermediate_size_mlp", "dense_intermediate_size"}},
    {{"tie_word_embeddings"}},
    {{"hidden_act", "mlp_hidden_act", "hidden_activation"}},
    // experts
    {{"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}},
    {{"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k",
      "top_k_experts", "moe_top_k"}},
    {{"moe_intermediate_size", "expert_ffn_hidden_size"}},
    {{"n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"}},
    {{"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size",
      "shared_intermediate_size", "share_expert_dim"}},
    {{"moe_latent_size", "routed_expert_hidden_size"}},
    {{"n_group"}},
    {{"topk_group"}},
    {{"scoring_func"}},
    {{"topk_method"}},
    {{"use_routing_bias", "moe_router_enable_expert_bias"}},
    // which layers are MoE
    {{"first_k_dense_replace"}},
    {{"moe_layer_freq"}},
    {{"decoder_sparse_step"}},
    {{"mlp_only_layers"}},
    {{"interleave_moe_layer_step"}},
    {{"moe_layer_start_index"}},
    {{"moe_layer_end_index"}},
    {{"moe_layer_interval"}},
    {{"mlp_layer_types"}},
    {{"moe_layers_enum"}},
    {{"hybrid_override_pattern"}},
    {{"layers_block_type"}},
    // attention
    {{"num_attention_heads", "n_heads"}},
    {{"num_key_value_heads", "kv_n_heads", "num_attention_groups"}},
    {{"head_dim"}},
    {{"attention_bias", "use_qkv_bias", "qkv_bias"}},
    {{"use_qk_norm", "qk_layernorm"}},
    {{"attn_output_gate"}},
    {{"layer_types"}},
    {{"sliding_window", "sliding_window_size"}},
    {{"use_sliding_window"}},
    {{"max_window_layers"}},
    {{"sliding_window_pattern"}},
    {{"hybrid_layer_pattern"}},
    {{"swa_num_attention_heads"}},
    {{"swa_num_key_value_heads"}},
    {{"swa_head_dim"}},
    {{"swa_v_head_dim"}},
    {{"global_head_dim"}},
    {{"num_global_key_value_heads"}},
    {{"attention_k_eq_v"}},
    {{"q_lora_rank"}},
    {{"kv_lora_rank"}},
    {{"qk_nope_head_dim"}},
    {{"qk_rope_head_dim"}},
    {{"v_head_dim"}},
    {{"o_lora_rank"}},
    {{"o_groups"}},
    {{"compress_ratios"}},
    {{"hc_mult"}},
    {{"index_n_heads"}},
    {{"index_head_dim"}},
    {{"index_topk"}},
    {{"index_topk_freq"}},
    {{"index_skip_topk_offset"}},
    {{"indexer_types"}},
    {{"dsa_indexer_use_sparse_loss"}},  // Megatron's; checkpoints do not say
    // linear attention, Mamba
    {{"full_attention_interval"}},
    {{"linear_num_key_heads"}},
    {{"linear_num_value_heads"}},
    {{"linear_key_head_dim"}},
    {{"linear_value_head_dim"}},
    {{"linear_conv_kernel_dim"}},
    {{"mamba_num_heads"}},
    {{"mamba_head_dim"}},
    {{"ssm_state_size", "mamba_state_dim"}},
    {{"n_groups", "mamba_num_groups"}},
    {{"conv_kernel"}},
    // multi-token prediction
    {{"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers"}},
    {{"use_mtp"}},
    {{"mtp_hybrid_override_pattern"}},
    {{"mtp_layers_block_type"}},
};

constexpr std::string_view kPerLayer[] = {
    "layer_types",    "mlp_layer_types",       "indexer_types",           "compress_ratios",
    "moe_layer_freq", "layers_block_type",     "hybrid_override_pattern", "hybrid_layer_pattern",
    "moe_topk",       "moe_intermediate_size", "num_shared_expert"};

constexpr std::string_view kLayerIndexLists[] = {"mlp_only_layers", "moe_layers_enum"};

constexpr HfUnmodelled kUnmodelled[] = {
    {"attention_chunk_size",
     "attention in chunks is priced as full attention: above that sequence length its cost is an "
     "upper bound"},
    {"cla_share_factor",
     "K and V shared between layers are counted in every layer: attention weights are an upper "
     "bound"},
    {"num_kv_shared_layers",
     "K and V shared between layers are counted in every layer: weights are an upper bound"},
    {"hidden_size_per_layer_input",
     "per-layer embeddings are not counted: parameters are a lower bound"},
    {"use_double_wide_mlp", "the double-width MLP is counted once: MLP cost is a lower bound"},
    {"mtp_use_dedicated_embeddings",
     "the MTP layers' own embedding is not counted: memory is a lower bound"},
    {"hc_mult", "hyper-connection weights and mixing are not counted in parameters and FLOPs"},
    {"num_hash_layers", "hash-routed layers are priced with a router like the others"},
    {"vision_config", "the vision tower is not modelled: text part only"},
    {"audio_config", "the audio tower is not modelled: text part only"},
    {"talker_config", "the talker is not modelled: text part only"},
};

constexpr std::string_view kIrrelevant[] = {"architectures",
                                            "auto_map",
                                            "aux_loss_alpha",
                                            "chunk_size",
                                            "dtype",
                                            "ep_size",
                                            "expand",
                                            "expert_dtype",
                                            "final_logit_softcapping",
                                            "ignore_index",
                                            "id2label",
                                            "label2id",
                                            "index_share_for_mtp_iteration",
                                            "index_topk_pattern",
                                            "mamba_hidden_act",
                                            "max_position_embeddings",
                                            "mlp_bias",
                                            "model_type",
                                            "moe_router_dtype",
                                            "moe_shared_expert_overlap",
                                            "mtp_transformer_layers",
                                            "name_or_path",
                                            "norm_topk_prob",
                                            "num_logits_to_keep",
                                            "output_router_logits",
                                            "partial_rotary_factor",
                                            "prefix",
                                            "pretraining_tp",
                                            "qk_head_dim",
                                            "qk_norm_type",
                                            "quantization_config",
                                            "rotary_dim",
                                            "routed_scaling_factor",
                                            "router_aux_loss_coef",
                                            "routing_alpha",
                                            "seq_aux",
                                            "swiglu_limit",
                                            "swiglu_alpha",
                                            "tokenizer_class",
                                            "torch_dtype",
                                            "transformers_version",
                                            "use_bias",
                                            "use_bidirectional_attention",
                                            "use_cache",
                                            "use_conv_bias",
                                            "use_mamba_kernels",
                                            "enable_moe_block",
                                            "vocab_size_per_layer_input",
                                            "num_beam_groups",
                                            "attention_dropout",
                                            "initializer_range",
                                            "initial_context_length",
                                            "clip_qkv",
                                            "embedding_multiplier"};

constexpr std::string_view kIrrelevantParts[] = {
    "rope",   "_eps",      "epsilon", "token_id", "token_index", "dropout", "init",       "_range",
    "jitter", "loss_coef", "cache",   "sinkhorn", "ssm_dtype",   "scaling", "temperature"};

bool contains(std::span<const std::string_view> list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

}  // namespace

bool HfField::has(std::string_view key) const { return !key.empty() && contains(names, key); }

std::span<const HfField> hf_fields() { return kFields; }

const HfField* hf_field(std::string_view key) {
  for (const HfField& field : kFields) {
    if (field.has(key)) return &field;
  }
  return nullptr;
}

bool is_per_layer(std::string_view key) { return contains(kPerLayer, key); }
bool is_layer_index_list(std::string_view key) { return contains(kLayerIndexLists, key); }
std::span<const HfUnmodelled> hf_unmodelled() { return kUnmodelled; }

bool is_irrelevant(std::string_view key) {
  if (contains(kIrrelevant, key)) return true;
  return std::any_of(
      std::begin(kIrrelevantParts), std::end(kIrrelevantParts),
      [&](std::string_view part) { return key.find(part) != std::string_view::npos; });
}

std::vector<std::string> hf_field_names() {
  std::vector<std::string> names;
  for (const HfField& field : kFields) {
    for (std::string_view name : field.names) {
      if (!name.empty()) names.emplace_back(name);
    }
  }
  return names;
}

}  // namespace moecast
