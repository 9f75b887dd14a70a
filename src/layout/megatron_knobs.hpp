#pragma once
/// A training configuration in Megatron's own long names (those of Megatron-LM's argument
/// namespace). The initializers are Megatron-LM's defaults; where Bridge's differ, the field table
/// (megatron_config.hpp) says so.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout/megatron_words.hpp"

namespace moecast {

enum class Flavour : std::uint8_t { megatron_lm, bridge };
std::string_view to_string(Flavour flavour);

/// The part that copies like a plain value: the search makes one per candidate.
struct MegatronKnobs {
  using Integer = std::optional<int>;
  using Number = std::optional<double>;
  using Flag = std::optional<bool>;

  // the job
  int world_size = 1;

  // model shape
  int num_layers = 0, hidden_size = 0, num_attention_heads = 0;
  Integer ffn_hidden_size, kv_channels, vocab_size, max_position_embeddings, mtp_num_layers;
  bool group_query_attention = false;
  Integer num_query_groups;
  bool multi_latent_attention = false, qk_layernorm = false, attention_output_gate = false;
  Integer q_lora_rank, kv_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim;
  Word position_embedding_type = "learned_absolute"_w, rope_type, normalization = "LayerNorm"_w;
  Word softmax_type = "vanilla"_w, experimental_attention_variant;
  bool rotary_interleaved = false, apply_rope_fusion = true;
  bool swiglu = false, quick_geglu = false, squared_relu = false;
  Number activation_func_clamp_value, glu_linear_offset;
  bool activation_func_fp8_input_store = false;
  bool add_bias_linear = true, add_qkv_bias = false, untie_embeddings_and_output_weights = false;
  double attention_dropout = 0.1, hidden_dropout = 0.1;
  bool bias_swiglu_fusion = true, bias_dropout_fusion = true, fp32_residual_connection = false;
  Integer linear_num_key_heads, linear_num_value_heads;  ///< gated delta net
  Integer mamba_num_heads, mamba_num_groups;
  bool enable_hyper_connections = false, mtp_hsm = false;

  // experts
  Integer num_experts, moe_ffn_hidden_size, moe_shared_expert_intermediate_size, moe_latent_size;
  int moe_router_topk = 2;
  Integer moe_router_num_groups, moe_router_group_topk;
  Word moe_router_score_function = "softmax"_w, moe_router_dtype;
  bool moe_router_enable_expert_bias = false, moe_router_pre_softmax = false;
  bool moe_router_fusion = false, moe_router_force_load_balancing = false;
  bool moe_router_padding_for_quantization = false, moe_router_padding_for_fp8 = false;
  Words moe_router_load_balancing_type{"aux_loss"_w};
  Number moe_input_jitter_eps;
  bool moe_apply_probs_on_input = false;
  bool moe_grouped_gemm = false, moe_use_grouped_tensor = false, moe_single_grouped_weight = false;
  bool moe_single_grouped_bias = false, use_transformer_engine_op_fuser = false;
  Integer moe_mlp_glu_interleave_size;
  Number moe_expert_capacity_factor, moe_expert_rank_capacity_factor;
  bool moe_pad_expert_input_to_capacity = false, moe_permute_fusion = false;
  Word moe_token_dispatcher_type = "allgather"_w, moe_flex_dispatcher_backend = "deepep"_w;
  Word moe_dispatch_fwd_dtype, moe_combine_bwd_dtype;
  bool moe_enable_deepep = false, moe_permute_fusion_into_hybridep = false;
  bool moe_hybridep_pad_uneven_dispatch_inputs = false;
  Integer moe_flex_dispatcher_num_sms, moe_deepep_num_sms, moe_hybridep_num_sms;
  Integer moe_hybridep_num_blocks_permute, moe_hybridep_num_blocks_unpermute;
  bool moe_shared_expert_overlap = false, moe_layer_recompute = false, moe_paged_stash = false;
  bool overlap_moe_expert_parallel_comm = false, delay_wgrad_compute = false;
  bool ep_overlap_early_attn_memory_release = false;
  bool overlap_dispatch_backward_with_experts_wgrad = false;

  // parallelism and batch
  int tensor_model_parallel_size = 1, pipeline_model_parallel_size = 1, context_parallel_size = 1;
  int expert_model_parallel_size = 1;
  Integer expert_tensor_parallel_size, tensor_parallel_num_weight_shards;
  Integer expert_tensor_parallel_num_weight_shards;
  bool sequence_parallel = false, use_tp_pp_dp_mapping = false, use_gloo_process_groups = true;
  Integer num_virtual_stages_per_pipeline_rank, num_layers_per_virtual_pipeline_stage;
  Integer decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers;
  bool account_for_embedding_in_pipeline_split = false, account_for_loss_in_pipeline_split = false;
  Integer microbatch_group_size_per_vp_stage;
  Integer num_microbatches_with_partial_activation_checkpoints;
  Words cp_comm_type;  ///< none = p2p
  bool hybrid_context_parallel = false;
  int micro_batch_size = 1;
  Integer global_batch_size, eval_global_batch_size;
  int seq_length = 0;
  bool decrease_batch_size_if_needed = false, variable_seq_lengths = false;
  bool calculate_per_token_loss = false, fake_process_group = false;
  Word dataloader_type;

  // communication
  Flag overlap_p2p_comm, batch_p2p_comm;
  bool overlap_p2p_comm_warmup_flush = false, tp_comm_overlap = false;
  Flag overlap_grad_reduce, overlap_param_gather, align_param_gather;
  bool overlap_param_gather_with_optimizer_step = false;
  bool defer_embedding_wgrad_compute = false;
  int wgrad_deferral_limit = 0;
  Integer ddp_bucket_size, ddp_num_buckets, num_distributed_optimizer_instances;
  bool ddp_average_in_collective = false, ddp_reduce_scatter_with_fp32_accumulation = false;
  bool nccl_ub = false, fsdp_manual_registration = false, distribute_saved_activations = false;

  // precision
  bool bf16 = false, fp16 = false;
  Number loss_scale;
  Word fp8_format, fp8_recipe = "delayed"_w, fp4_format, fp4_recipe = "nvfp4"_w;
  bool fp8_param_gather = false, fp4_param_gather = false, fp8_output_proj = false;
  bool reuse_grad_buf_for_mxfp8_param_ag = false, first_last_layers_bf16 = false;
  int num_layers_at_start_in_bf16 = 1, num_layers_at_end_in_bf16 = 1;
  bool grad_reduce_in_bf16 = false, accumulate_allreduce_grads_in_fp32 = false;
  Word main_grads_dtype = "fp32"_w, main_params_dtype = "fp32"_w;
  Word exp_avg_dtype = "fp32"_w, exp_avg_sq_dtype = "fp32"_w;

  // optimizer, FSDP, checkpoints
  Word optimizer = "adam"_w;
  bool use_distributed_optimizer = false, use_precision_aware_optimizer = false;
  bool use_layer_wise_distributed_optimizer = false;
  bool optimizer_cpu_offload = false;
  double optimizer_offload_fraction = 1.0;
  bool use_megatron_fsdp = false, use_torch_fsdp2 = false, init_model_with_meta_device = false;
  Word data_parallel_sharding_strategy = "no_shard"_w;
  int megatron_fsdp_version = 1;
  Word ckpt_format = "torch_dist"_w;

  // kernels
  Word transformer_impl = "transformer_engine"_w, cross_entropy_fusion_impl = "native"_w;
  bool cross_entropy_loss_fusion = false, gradient_accumulation_fusion = true;

  // recompute, offload, graphs
  Word recompute_granularity, recompute_method;
  Integer recompute_num_layers;
  Words recompute_modules;
  bool cpu_offloading = false;
  int cpu_offloading_num_layers = 0;
  bool fine_grained_activation_offloading = false;
  Words offload_modules;
  int min_offloaded_tensor_size = 1 << 20;
  double activation_offload_fraction = 1.0;
  int delta_offload_bytes_across_pp_ranks = 0;
  Integer fine_grained_offloading_max_inflight_offloads;
  Word cuda_graph_impl = "none"_w;
  Words cuda_graph_modules;
  int cuda_graph_warmup_steps = 3;
  Flag te_rng_tracker;
  bool check_for_nan_in_loss_and_grad = true;

  bool operator==(const MegatronKnobs&) const = default;
};

struct MegatronConfig : MegatronKnobs {
  std::string gpu;  ///< h100, h200, b200, b300, gb200, gb300; empty = unknown
  std::string te_version, pytorch_version, megatron_core_version,
      bridge_version;  ///< empty = unknown
  std::map<std::string, std::string> env;
  std::vector<int> moe_layer_freq{
      1};  ///< one positive entry = every n-th layer; else 0/1 per layer
  std::vector<double> moe_aux_loss_coeff;
  std::string pipeline_model_parallel_layout;
  std::vector<int> hierarchical_context_parallel_sizes;
  std::string fp8_quantizer_factory, fp4_quantizer_factory;
  std::string save, load;
  /// Words outside the vocabulary, as written, by field.
  std::map<std::string, std::string> other_words;
  bool operator==(const MegatronConfig&) const = default;
};

}  // namespace moecast
