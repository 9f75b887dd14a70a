/// The rows of the field table.
#include <algorithm>
#include <iterator>

#include "layout/megatron_config.hpp"

namespace moecast {
namespace {

using Fields = std::vector<MegatronField>;

/// A field under its member's name. In a flag "=" stands for the name with dashes, in a Bridge path
/// for the name as it is.
#define FIELD(name) #name, &MegatronConfig::name

constexpr std::string_view kModelKey = "model";

Fields job_fields() {
  return {
      {FIELD(world_size), "", "", "cluster.gpus", "", {}, "-ng"},
      {FIELD(gpu), "", "", "cluster.system", "", {}, "-g"},
      {FIELD(te_version), "", "", "software.transformer_engine"},
      {FIELD(pytorch_version), "", "", "software.pytorch"},
      {FIELD(megatron_core_version), "", "", "software.megatron_core"},
      {FIELD(bridge_version), "", "", "software.bridge"},
      {FIELD(micro_batch_size), "=", "train.=", "train.micro_batch_size", "", {}, "-mb"},
      {FIELD(global_batch_size), "=", "train.=", "train.global_batch_size", "", {}, "-gb"},
      {FIELD(eval_global_batch_size), "=", "validation.="},
      {FIELD(seq_length), "=", "model.=", "train.seq_length", "", {}, "-sl"},
      {FIELD(decrease_batch_size_if_needed), "=", "train.="},
      {FIELD(calculate_per_token_loss), "=", "model.="},
      {FIELD(variable_seq_lengths), "", "model.="},
      {FIELD(fake_process_group), "=", ""},
      {FIELD(dataloader_type), "=", "dataset.="},
      {FIELD(save), "=", "checkpoint.="},
      {FIELD(load), "=", "checkpoint.="},
      {FIELD(ckpt_format),
       "=",
       "checkpoint.=",
       "",
       "",
       {"torch"_w, "torch_dist"_w, "torch_dcp"_w, "fsdp_dtensor"_w, "zarr"_w}},
      {FIELD(check_for_nan_in_loss_and_grad), "--no-check-for-nan-in-loss-and-grad",
       "rerun_state_machine.check_for_nan_in_loss"},
  };
}

Fields model_fields() {
  return {
      {FIELD(num_layers), "=", "model.=", kModelKey, "", {}, "--num_layers"},
      {FIELD(hidden_size), "=", "model.=", kModelKey, "", {}, "--hidden_size"},
      {FIELD(ffn_hidden_size), "=", "model.=", kModelKey},
      {FIELD(num_attention_heads), "=", "model.=", kModelKey},
      {FIELD(group_query_attention), "=", "", kModelKey},
      {FIELD(num_query_groups), "=", "model.=", kModelKey},
      {FIELD(kv_channels), "=", "model.=", kModelKey},
      {FIELD(qk_layernorm), "=", "model.=", kModelKey},
      {FIELD(attention_output_gate), "=", "model.=", kModelKey},
      {FIELD(multi_latent_attention), "=", "model.=", kModelKey},
      {FIELD(q_lora_rank), "=", "model.=", kModelKey},
      {FIELD(kv_lora_rank), "=", "model.=", kModelKey},
      {FIELD(qk_head_dim), "=", "model.=", kModelKey},
      {FIELD(qk_pos_emb_head_dim), "=", "model.=", kModelKey},
      {FIELD(v_head_dim), "=", "model.=", kModelKey},
      {FIELD(experimental_attention_variant),
       "=",
       "model.=",
       kModelKey,
       "",
       {"gated_delta_net"_w, "dsa"_w}},
      {FIELD(linear_num_key_heads), "=", "model.=", kModelKey},
      {FIELD(linear_num_value_heads), "=", "model.=", kModelKey},
      {FIELD(mamba_num_heads), "=", "model.=", kModelKey},
      {FIELD(mamba_num_groups), "=", "model.=", kModelKey},
      {FIELD(enable_hyper_connections), "=", "model.=", kModelKey},
      {FIELD(vocab_size), "=", "model.=", kModelKey},
      {FIELD(max_position_embeddings), "=", "model.="},
      {FIELD(position_embedding_type),
       "=",
       "model.=",
       kModelKey,
       "\"learned_absolute\"",
       {"learned_absolute"_w, "rope"_w, "mrope"_w, "yarn"_w, "relative"_w, "none"_w}},
      {FIELD(rope_type), "=", "model.=", kModelKey, "", {"rope"_w, "yarn"_w}},
      {FIELD(rotary_interleaved), "=", "model.=", kModelKey},
      {FIELD(apply_rope_fusion), "--no-rope-fusion", "model.=", "", "false"},
      {FIELD(normalization), "=", "model.=", kModelKey, "", {"LayerNorm"_w, "RMSNorm"_w}},
      {FIELD(softmax_type),
       "=",
       "model.=",
       kModelKey,
       "",
       {"learnable"_w, "vanilla"_w, "off-by-one"_w}},
      {FIELD(swiglu), "=", "model.gated_linear_unit", kModelKey},
      {FIELD(quick_geglu), "=", "", kModelKey},
      {FIELD(squared_relu), "=", "", kModelKey},
      {FIELD(activation_func_clamp_value), "=", "model.=", kModelKey},
      {FIELD(glu_linear_offset), "=", "model.=", kModelKey},
      {FIELD(activation_func_fp8_input_store), "=", "model.="},
      {FIELD(add_bias_linear), "--disable-bias-linear", "model.=", kModelKey},
      {FIELD(add_qkv_bias), "=", "model.=", kModelKey},
      {FIELD(untie_embeddings_and_output_weights), "=", "", kModelKey},
      {FIELD(attention_dropout), "=", "model.="},
      {FIELD(hidden_dropout), "=", "model.="},
      {FIELD(bias_swiglu_fusion), "--no-bias-swiglu-fusion", "model.bias_activation_fusion", "",
       "false"},
      {FIELD(bias_dropout_fusion), "--no-bias-dropout-fusion", "model.=", "", "false"},
      {FIELD(fp32_residual_connection), "=", "model.="},
      {FIELD(mtp_num_layers), "=", "model.=", kModelKey},
      {FIELD(mtp_hsm), "=", "model.="},
      {FIELD(transformer_impl),
       "=",
       "model.=",
       "",
       "",
       {"local"_w, "transformer_engine"_w, "inference_optimized"_w}},
      {FIELD(cross_entropy_loss_fusion), "=", "model.="},
      {FIELD(cross_entropy_fusion_impl), "=", "model.=", "", "", {"native"_w, "te"_w}},
      {FIELD(gradient_accumulation_fusion), "--no-gradient-accumulation-fusion", "model.="},
  };
}

Fields expert_fields() {
  return {
      {FIELD(num_experts), "=", "model.num_moe_experts", kModelKey, "", {}, "--num_moe_experts"},
      {FIELD(moe_router_topk), "=", "model.=", kModelKey},
      {FIELD(moe_ffn_hidden_size), "=", "model.=", kModelKey},
      {FIELD(moe_shared_expert_intermediate_size), "=", "model.=", kModelKey},
      {FIELD(moe_latent_size), "=", "model.=", kModelKey},
      {FIELD(moe_layer_freq), "=", "model.=", kModelKey},
      {FIELD(moe_router_num_groups), "=", "model.=", kModelKey},
      {FIELD(moe_router_group_topk), "=", "model.=", kModelKey},
      {FIELD(moe_router_score_function),
       "=",
       "model.=",
       kModelKey,
       "",
       {"softmax"_w, "sigmoid"_w, "sqrtsoftplus"_w}},
      {FIELD(moe_router_enable_expert_bias), "=", "model.=", kModelKey},
      {FIELD(moe_router_pre_softmax), "=", "model.=", kModelKey},
      {FIELD(moe_router_dtype), "=", "model.=", "software.features", "", {"fp32"_w, "fp64"_w}},
      {FIELD(moe_router_fusion), "=", "model.=", "software.features"},
      {FIELD(moe_router_force_load_balancing), "=", "model.=", "moe.routing"},
      {FIELD(moe_router_load_balancing_type), "=", "model.="},
      {FIELD(moe_aux_loss_coeff), "=", "model.="},
      {FIELD(moe_router_padding_for_quantization), "=", "model.=", "software.features"},
      {FIELD(moe_router_padding_for_fp8), "=", "model.="},
      {FIELD(moe_input_jitter_eps), "=", "model.="},
      {FIELD(moe_apply_probs_on_input), "=", "model.="},
      {FIELD(moe_grouped_gemm), "=", "model.="},
      {FIELD(moe_use_grouped_tensor), "=", "model.=", "software.features"},
      {FIELD(moe_single_grouped_weight), "=", "model.="},
      {FIELD(moe_single_grouped_bias), "=", "model.="},
      {FIELD(use_transformer_engine_op_fuser), "=", "model.=", "software.features"},
      {FIELD(moe_mlp_glu_interleave_size), "=", "model.="},
      {FIELD(moe_expert_capacity_factor), "=", "model.=", "moe.capacity_factor"},
      {FIELD(moe_pad_expert_input_to_capacity), "=", "model.=", "moe.capacity_factor"},
      {FIELD(moe_expert_rank_capacity_factor), "=", "model.=", "software.features"},
      {FIELD(moe_paged_stash), "=", "model.=", "software.features"},
      {FIELD(moe_permute_fusion), "=", "model.=", "software.features"},
      {FIELD(moe_token_dispatcher_type),
       "=",
       "model.=",
       "moe.dispatcher",
       "",
       {"allgather"_w, "alltoall"_w, "flex"_w}},
      {FIELD(moe_flex_dispatcher_backend),
       "=",
       "model.=",
       "moe.dispatcher",
       "",
       {"deepep"_w, "hybridep"_w, "ncclep"_w},
       "--moe_flex_dispatcher_backend"},
      {FIELD(moe_dispatch_fwd_dtype), "=", "model.="},
      {FIELD(moe_combine_bwd_dtype), "=", "model.="},
      {FIELD(moe_enable_deepep), "=", "model.="},
      {FIELD(moe_flex_dispatcher_num_sms), "=", "model.=", "moe.dispatcher_num_sms"},
      {FIELD(moe_deepep_num_sms), "=", "model.="},
      {FIELD(moe_hybridep_num_sms), "=", "model.="},
      {FIELD(moe_hybridep_num_blocks_permute), "=", "model.=", "software.env"},
      {FIELD(moe_hybridep_num_blocks_unpermute), "=", "model.=", "software.env"},
      {FIELD(moe_permute_fusion_into_hybridep), "=", "model.="},
      {FIELD(moe_hybridep_pad_uneven_dispatch_inputs), "=", "model.="},
      {FIELD(moe_shared_expert_overlap), "=", "model.=", "moe.moe_shared_expert_overlap"},
      {FIELD(overlap_moe_expert_parallel_comm),
       "=",
       "comm_overlap.=",
       "moe.overlap_moe_expert_parallel_comm",
       "",
       {},
       "--moe_a2a_overlap"},
      {FIELD(delay_wgrad_compute), "=", "comm_overlap.=", "moe.delay_wgrad_compute"},
      {FIELD(ep_overlap_early_attn_memory_release), "=", "model.="},
      {FIELD(overlap_dispatch_backward_with_experts_wgrad), "=", "model.="},
  };
}

Fields parallel_fields() {
  return {
      {FIELD(tensor_model_parallel_size), "=", "model.=", "layout.tp", "", {}, "-tp"},
      {FIELD(pipeline_model_parallel_size), "=", "model.=", "layout.pp", "", {}, "-pp"},
      {FIELD(context_parallel_size), "=", "model.=", "layout.cp", "", {}, "-cp"},
      {FIELD(expert_model_parallel_size), "=", "model.=", "layout.ep", "", {}, "-ep"},
      {FIELD(expert_tensor_parallel_size), "=", "model.=", "layout.etp", "", {}, "-et"},
      {FIELD(num_virtual_stages_per_pipeline_rank),
       "--num-virtual-stages-per-pipeline-rank",
       "model.virtual_pipeline_model_parallel_size",
       "layout.vpp",
       "",
       {},
       "-vp"},
      {FIELD(num_layers_per_virtual_pipeline_stage), "=", ""},
      {FIELD(tensor_parallel_num_weight_shards), "=", "model.="},
      {FIELD(expert_tensor_parallel_num_weight_shards), "=", "model.="},
      {FIELD(sequence_parallel), "=", "model.=", "layout.sequence_parallel"},
      {FIELD(use_tp_pp_dp_mapping), "=", "dist.="},
      {FIELD(use_gloo_process_groups), "--disable-gloo-process-groups", "dist.="},
      {FIELD(decoder_first_pipeline_num_layers), "=", "model.num_layers_in_first_pipeline_stage"},
      {FIELD(decoder_last_pipeline_num_layers), "=", "model.num_layers_in_last_pipeline_stage"},
      {FIELD(account_for_embedding_in_pipeline_split), "=", "model.="},
      {FIELD(account_for_loss_in_pipeline_split), "=", "model.="},
      {FIELD(pipeline_model_parallel_layout),
       "=",
       "model.=",
       "layout.pipeline_model_parallel_layout",
       "",
       {},
       "--pipeline_model_parallel_layout"},
      {FIELD(microbatch_group_size_per_vp_stage),
       "--microbatch-group-size-per-virtual-pipeline-stage",
       "model.=", "layout.microbatch_group_size_per_vp_stage"},
      {FIELD(num_microbatches_with_partial_activation_checkpoints), "", "model.="},
      {FIELD(cp_comm_type), "=", "model.=", "comm.cp_comm_type"},
      {FIELD(hierarchical_context_parallel_sizes), "=", "model.="},
      {FIELD(hybrid_context_parallel), "=", "model.="},
  };
}

Fields communication_fields() {
  return {
      {FIELD(overlap_p2p_comm), "--no-overlap-p2p-communication", "comm_overlap.="},
      {FIELD(batch_p2p_comm), "", "comm_overlap.="},
      {FIELD(overlap_p2p_comm_warmup_flush), "--overlap-p2p-communication-warmup-flush", "model.="},
      {FIELD(tp_comm_overlap), "=", "comm_overlap.=", "comm.tp_comm_overlap"},
      {FIELD(overlap_grad_reduce), "=", "comm_overlap.=", "comm.overlap_grad_reduce"},
      {FIELD(overlap_param_gather), "=", "comm_overlap.=", "comm.overlap_param_gather"},
      {FIELD(align_param_gather), "--no-align-param-gather", "comm_overlap.="},
      {FIELD(overlap_param_gather_with_optimizer_step), "=", "comm_overlap.="},
      {FIELD(defer_embedding_wgrad_compute), "=", "comm_overlap.="},
      {FIELD(wgrad_deferral_limit), "=", "comm_overlap.=", "", "-1"},
      {FIELD(ddp_bucket_size), "=", "comm_overlap.bucket_size"},
      {FIELD(ddp_num_buckets), "=", "ddp.num_buckets"},
      {FIELD(num_distributed_optimizer_instances), "=", "ddp.="},
      {FIELD(ddp_average_in_collective), "=", "ddp.average_in_collective"},
      {FIELD(ddp_reduce_scatter_with_fp32_accumulation), "=",
       "ddp.reduce_scatter_with_fp32_accumulation"},
      {FIELD(nccl_ub), "--use-nccl-ub", "ddp.=", "", "", {}, "--nccl_ub"},
      {FIELD(fsdp_manual_registration), "=", "ddp.="},
      {FIELD(distribute_saved_activations), "--distribute-saved-activations", "model.="},
  };
}

Fields precision_fields() {
  const Words dtypes{"fp32"_w, "bf16"_w, "fp16"_w, "fp8"_w};
  return {
      {FIELD(bf16), "=", "mixed_precision.=", "precision"},
      {FIELD(fp16), "=", "mixed_precision.=", "precision"},
      {FIELD(loss_scale), "=", "mixed_precision.="},
      {FIELD(fp8_format), "=", "mixed_precision.fp8", "precision", "", {"e4m3"_w, "hybrid"_w}},
      {FIELD(fp8_recipe),
       "=",
       "mixed_precision.=",
       "precision",
       "\"tensorwise\"",
       {"tensorwise"_w, "delayed"_w, "mxfp8"_w, "blockwise"_w, "custom"_w}},
      {FIELD(fp8_param_gather), "=", "mixed_precision.="},
      {FIELD(fp8_output_proj), "=", "model.="},
      {FIELD(fp8_quantizer_factory), "=", "model.="},
      {FIELD(fp4_format), "=", "mixed_precision.fp4", "precision", "", {"e2m1"_w}},
      {FIELD(fp4_recipe), "=", "mixed_precision.=", "precision", "", {"nvfp4"_w, "custom"_w}},
      {FIELD(fp4_param_gather), "=", "mixed_precision.="},
      {FIELD(fp4_quantizer_factory), "=", "model.="},
      {FIELD(reuse_grad_buf_for_mxfp8_param_ag), "=", "mixed_precision.="},
      {FIELD(first_last_layers_bf16), "=", "mixed_precision.=", "software.features"},
      {FIELD(num_layers_at_start_in_bf16), "=", "mixed_precision.=", "", "0"},
      {FIELD(num_layers_at_end_in_bf16), "=", "mixed_precision.=", "", "0"},
      {FIELD(grad_reduce_in_bf16), "=", "", "optimizer.grad_dtype"},
      {FIELD(accumulate_allreduce_grads_in_fp32), "=", "mixed_precision.grad_reduce_in_fp32",
       "optimizer.grad_dtype"},
      {FIELD(main_grads_dtype), "=", "optimizer.=", "optimizer.grad_dtype", "", dtypes},
      {FIELD(main_params_dtype), "=", "optimizer.=", "optimizer.master_dtype", "", dtypes},
      {FIELD(exp_avg_dtype), "=", "optimizer.=", "optimizer.moment_dtype", "", dtypes},
      {FIELD(exp_avg_sq_dtype), "=", "optimizer.=", "optimizer.moment_dtype", "", dtypes},
  };
}

Fields optimizer_fields() {
  return {
      {FIELD(optimizer), "=", "optimizer.=", "", "", {}, "--optimizer_type"},
      {FIELD(use_distributed_optimizer), "=", "ddp.=", "optimizer.distributed"},
      {FIELD(use_precision_aware_optimizer), "=", "optimizer.=", "optimizer.precision_aware"},
      {FIELD(use_layer_wise_distributed_optimizer), "=", "optimizer.="},
      {FIELD(optimizer_cpu_offload), "=", "optimizer.=", "offload.optimizer_fraction"},
      {FIELD(optimizer_offload_fraction), "=", "optimizer.=", "offload.optimizer_fraction", "0.0"},
      {FIELD(use_megatron_fsdp), "=", "dist.=", "fsdp", "", {}, "--use_megatron_fsdp"},
      {FIELD(use_torch_fsdp2), "=", "dist.="},
      {FIELD(init_model_with_meta_device), "=", "model.="},
      {FIELD(data_parallel_sharding_strategy),
       "=",
       "ddp.=",
       "fsdp",
       "",
       {"no_shard"_w, "optim"_w, "optim_grads"_w, "optim_grads_params"_w}},
      {FIELD(megatron_fsdp_version), "=", "ddp.="},
  };
}

Fields memory_fields() {
  return {
      {FIELD(recompute_granularity),
       "=",
       "model.=",
       "recompute.granularity",
       "",
       {"full"_w, "selective"_w}},
      {FIELD(recompute_method), "=", "model.=", "recompute.method", "", {"uniform"_w, "block"_w}},
      {FIELD(recompute_num_layers), "=", "model.=", "recompute.num_layers", "", {}, "-rl"},
      {FIELD(recompute_modules),
       "=",
       "model.=",
       "recompute.modules",
       "",
       {},
       "--recompute_modules"},
      {FIELD(moe_layer_recompute), "=", "model.="},
      {FIELD(cpu_offloading), "", "model.=", "offload.cpu_offloading_num_layers"},
      {FIELD(cpu_offloading_num_layers),
       "=",
       "model.=",
       "offload.cpu_offloading_num_layers",
       "",
       {},
       "-ol"},
      {FIELD(fine_grained_activation_offloading), "=", "model.=", "offload.activation_modules"},
      {FIELD(offload_modules), "=", "model.=", "offload.activation_modules"},
      {FIELD(min_offloaded_tensor_size), "=", "model.="},
      {FIELD(activation_offload_fraction), "=", "model.=", "offload.activation_fraction"},
      {FIELD(delta_offload_bytes_across_pp_ranks), "=", "model.="},
      {FIELD(fine_grained_offloading_max_inflight_offloads), "=", "model.="},
      {FIELD(cuda_graph_impl),
       "=",
       "model.=",
       "cuda_graph.impl",
       "",
       {"none"_w, "local"_w, "transformer_engine"_w, "full_iteration"_w},
       "--cuda_graph_impl"},
      {FIELD(cuda_graph_modules), "=", "model.=", "cuda_graph.scope", "", {}, "--cuda_graph_scope"},
      {FIELD(cuda_graph_warmup_steps), "=", "model.="},
      {FIELD(te_rng_tracker), "=", "rng.="},
  };
}

#undef FIELD

std::string expanded(std::string text, std::string name) {
  if (text.empty() || text.back() != '=') return text;
  text.pop_back();
  return text + name;
}

}  // namespace

const std::vector<MegatronField>& megatron_fields() {
  static const Fields table = [] {
    Fields all;
    for (auto part : {job_fields, model_fields, expert_fields, parallel_fields,
                      communication_fields, precision_fields, optimizer_fields, memory_fields}) {
      Fields rows = part();
      std::move(rows.begin(), rows.end(), std::back_inserter(all));
    }
    for (MegatronField& f : all) {
      std::string dashed(f.name);
      std::replace(dashed.begin(), dashed.end(), '_', '-');
      if (f.flag == "=") f.flag = "--" + dashed;
      f.bridge = expanded(f.bridge, std::string(f.name));
    }
    return all;
  }();
  return table;
}

}  // namespace moecast
