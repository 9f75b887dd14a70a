/// For each rule over Megatron's options: options that break it on top of a legal base, and near
/// ones that do not.
#include "rules_option_cases.hpp"

#include <stdexcept>

#include "layout/megatron_config.hpp"
#include "layout/rules.hpp"

namespace moecast::test {
namespace {

/// Qwen3-30B-A3B on 64 H200: TP2 PP2 VPP2 EP8, DP 16, 4 microbatches.
constexpr const char* kBase = R"({
  "position_embedding_type": "rope", "swiglu": true, "normalization": "RMSNorm",
  "add_bias_linear": false, "untie_embeddings_and_output_weights": true, "bf16": true,
  "attention_dropout": 0.0, "hidden_dropout": 0.0, "moe_grouped_gemm": true,
  "group_query_attention": true, "num_layers": 48, "hidden_size": 2048,
  "num_attention_heads": 32, "num_query_groups": 4, "kv_channels": 128, "ffn_hidden_size": 6144,
  "num_experts": 128, "moe_router_topk": 8, "moe_ffn_hidden_size": 768, "moe_router_dtype": "fp32",
  "vocab_size": 151936, "max_position_embeddings": 4096, "apply_rope_fusion": true,
  "world_size": 64, "tensor_model_parallel_size": 2, "sequence_parallel": true,
  "pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 2,
  "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1, "micro_batch_size": 1,
  "global_batch_size": 64, "seq_length": 4096, "moe_token_dispatcher_type": "alltoall",
  "use_distributed_optimizer": true, "overlap_grad_reduce": true, "overlap_param_gather": true,
  "gpu": "h200", "te_version": "2.12.0", "pytorch_version": "2.11.0",
  "env.CUDA_DEVICE_MAX_CONNECTIONS": "1", "env.NVTE_CPU_OFFLOAD_V1": "1"})";

void set_all(MegatronConfig& config, const std::string& options) {
  const auto object = nlohmann::json::parse(options);
  for (const auto& [name, value] : object.items()) {
    if (const auto problem = set(config, name, value)) throw std::logic_error(to_string(*problem));
  }
}

}  // namespace

std::set<std::string> broken_by_options(const std::string& options, Flavour flavour) {
  MegatronConfig config = default_config(flavour);
  set_all(config, kBase);
  set_all(config, options);
  const Checkable subject(config, surroundings_of(config, flavour));
  std::set<std::string> ids;
  for (const Finding& f : check_rules(subject.input())) ids.insert(f.rule);
  return ids;
}

namespace {

// clang-format off
const std::vector<OptionCase> kOptionCases = {
      {"ONE-CHANGE", R"j({"overlap_moe_expert_parallel_comm":true,"cuda_graph_impl":"transformer_engine","fp8_format":"hybrid"})j", R"j({"overlap_moe_expert_parallel_comm":true,"fp8_format":"hybrid"})j"},
      {"HOST-WALL", R"j({"gpu":"gb200"})j", R"j({"gpu":"gb200","cuda_graph_impl":"transformer_engine"})j"},
      {"QUANTIZED-MFU", R"j({"fp8_format":"hybrid"})j", R"j({"fp8_recipe":"delayed"})j"},
      {"FOLDING", R"j({"expert_tensor_parallel_size":2})j", R"j({"expert_tensor_parallel_size":1})j"},
      {"OVERLAP-UNIONS", R"j({"overlap_moe_expert_parallel_comm":true})j", R"j({"overlap_moe_expert_parallel_comm":false})j"},
      {"FLEX-AFTER-ALLTOALL", R"j({"moe_token_dispatcher_type":"flex"})j", R"j({"moe_flex_dispatcher_backend":"hybridep"})j"},
      {"ALLGATHER-VARIABLE", R"j({"moe_token_dispatcher_type":"allgather","variable_seq_lengths":true})j", R"j({"variable_seq_lengths":true})j"},
      {"AUX-LOSS-COEFFS", R"j({"moe_router_load_balancing_type":["aux_loss","seq_aux_loss"]})j", R"j({"moe_router_load_balancing_type":["aux_loss","seq_aux_loss"],"moe_aux_loss_coeff":[0.01,0.01]})j"},
      {"BACKEND-PROOF", R"j({"moe_token_dispatcher_type":"flex","cuda_graph_impl":"transformer_engine"})j", R"j({"moe_token_dispatcher_type":"flex"})j"},
      {"BATCH-EVAL", R"j({"eval_global_batch_size":24})j", R"j({"eval_global_batch_size":32})j"},
      {"CAPACITY-BALANCING", R"j({"moe_expert_capacity_factor":1.0,"moe_router_load_balancing_type":["sinkhorn"]})j", R"j({"moe_expert_capacity_factor":1.0})j"},
      {"CAPACITY-PAD", R"j({"moe_pad_expert_input_to_capacity":true})j", R"j({"moe_pad_expert_input_to_capacity":true,"moe_expert_capacity_factor":1.0})j"},
      {"CP-HIERARCHY-SIZES", R"j({"hierarchical_context_parallel_sizes":[2,2]})j", R"j({"hierarchical_context_parallel_sizes":[1,1]})j"},
      {"CP-TYPE-LENGTH", R"j({"cp_comm_type":["p2p","a2a"],"context_parallel_size":2})j", R"j({"cp_comm_type":["p2p"]})j"},
      {"CP-TYPE-UNKNOWN", R"j({"cp_comm_type":["ring"],"context_parallel_size":2})j", R"j({"cp_comm_type":["a2a"],"context_parallel_size":2})j"},
      {"COUNTED-AND-ACCOUNTED", R"j({"decoder_first_pipeline_num_layers":24,"account_for_embedding_in_pipeline_split":true})j", R"j({"decoder_first_pipeline_num_layers":24})j"},
      {"COUNTED-SPLIT", R"j({"decoder_first_pipeline_num_layers":23})j", R"j({"decoder_first_pipeline_num_layers":22})j"},
      {"CROSS-ENTROPY-TE", R"j({"cross_entropy_loss_fusion":true,"cross_entropy_fusion_impl":"te"})j", R"j({"cross_entropy_loss_fusion":true})j"},
      {"CUSTOM-RECIPE", R"j({"fp8_format":"hybrid","fp8_recipe":"custom"})j", R"j({"fp8_format":"hybrid","fp8_recipe":"custom","fp8_quantizer_factory":"mine.factory"})j"},
      {"DDP-BUCKETS", R"j({"ddp_num_buckets":4,"ddp_bucket_size":1000})j", R"j({"ddp_bucket_size":1000})j"},
      {"DDP-BUCKETS-POSITIVE", R"j({"ddp_num_buckets":0})j", R"j({"ddp_num_buckets":1})j"},
      {"DEEPEP-ENABLE", R"j({"moe_enable_deepep":true})j", R"j({"moe_enable_deepep":true,"moe_token_dispatcher_type":"flex"})j"},
      {"DELAY-WGRAD-GRAPH-FUSION", R"j({"delay_wgrad_compute":true,"overlap_moe_expert_parallel_comm":true,"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["attn"],"gradient_accumulation_fusion":false})j", R"j({"delay_wgrad_compute":true,"overlap_moe_expert_parallel_comm":true,"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["attn"]})j"},
      {"DELAY-WGRAD-IMPL", R"j({"delay_wgrad_compute":true,"overlap_moe_expert_parallel_comm":true,"transformer_impl":"local"})j", R"j({"delay_wgrad_compute":true,"overlap_moe_expert_parallel_comm":true})j"},
      {"DELAY-WGRAD-NO-FUSION-TE", R"j({"delay_wgrad_compute":true,"te_version":"2.6.0","gradient_accumulation_fusion":false})j", R"j({"delay_wgrad_compute":true,"te_version":"2.6.0"})j"},
      {"DELAY-WGRAD-REDUCE-TE28", R"j({"delay_wgrad_compute":true,"te_version":"2.7.0"})j", R"j({"delay_wgrad_compute":true,"te_version":"2.8.0"})j"},
      {"DISPATCH-DTYPE-BACKEND", R"j({"moe_dispatch_fwd_dtype":"mxfp8"})j", R"j({"moe_dispatch_fwd_dtype":"mxfp8","moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep"})j"},
      {"DISPATCH-DTYPE-FUSER", R"j({"moe_dispatch_fwd_dtype":"mxfp8"})j", R"j({"moe_dispatch_fwd_dtype":"mxfp8","use_transformer_engine_op_fuser":true})j"},
      {"DISPATCHER-SMS-TWICE", R"j({"moe_deepep_num_sms":20,"moe_hybridep_num_sms":16})j", R"j({"moe_deepep_num_sms":20,"moe_hybridep_num_sms":20})j"},
      {"DSA-PLAIN", R"j({"experimental_attention_variant":"dsa"})j", R"j({"experimental_attention_variant":"dsa","apply_rope_fusion":false})j"},
      {"EMBEDDING-WGRAD", R"j({"defer_embedding_wgrad_compute":true,"wgrad_deferral_limit":-1})j", R"j({"defer_embedding_wgrad_compute":true,"wgrad_deferral_limit":0})j"},
      {"EP-OVERLAP-EARLY-RELEASE", R"j({"ep_overlap_early_attn_memory_release":true})j", R"j({"ep_overlap_early_attn_memory_release":true,"overlap_moe_expert_parallel_comm":true})j"},
      {"EP-OVERLAP-NCCLEP-OFFLOAD", R"j({"overlap_moe_expert_parallel_comm":true,"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep","fine_grained_activation_offloading":true,"offload_modules":["expert_fc1"]})j", R"j({"overlap_moe_expert_parallel_comm":true,"fine_grained_activation_offloading":true,"offload_modules":["expert_fc1"]})j"},
      {"EP-OVERLAP-PRECISION", R"j({"overlap_moe_expert_parallel_comm":true,"bf16":false})j", R"j({"overlap_moe_expert_parallel_comm":true})j"},
      {"EXPERT-TP", R"j({"expert_tensor_parallel_size":2})j", R"j({})j"},
      {"EXPERTS-POSITIVE", R"j({"num_experts":0})j", R"j({"num_experts":64})j"},
      {"FAKE-GROUP-FLEX", R"j({"fake_process_group":true,"moe_token_dispatcher_type":"flex"})j", R"j({"fake_process_group":true})j"},
      {"FIRST-LAST-COUNTS", R"j({"first_last_layers_bf16":true,"num_layers_at_start_in_bf16":25})j", R"j({"first_last_layers_bf16":true,"num_layers_at_start_in_bf16":24})j"},
      {"FLEX-BACKEND-ALONE", R"j({"moe_flex_dispatcher_backend":"hybridep"})j", R"j({"moe_flex_dispatcher_backend":"hybridep","moe_token_dispatcher_type":"flex"})j"},
      {"FLEX-PROBS-FP32", R"j({"moe_token_dispatcher_type":"flex","moe_router_dtype":null})j", R"j({"moe_token_dispatcher_type":"flex"})j"},
      {"FLEX-SKIPPED", R"j({"moe_token_dispatcher_type":"flex","gpu":"v100"})j", R"j({"moe_token_dispatcher_type":"flex","gpu":"a100"})j"},
      {"FP16-AND-BF16", R"j({"fp16":true})j", R"j({"fp16":true,"bf16":false})j"},
      {"FP32-RESIDUAL", R"j({"fp32_residual_connection":true,"bf16":false})j", R"j({"fp32_residual_connection":true})j"},
      {"FP32-RESIDUAL-P2P", R"j({"fp32_residual_connection":true})j", R"j({"fp32_residual_connection":true,"pipeline_model_parallel_size":1})j"},
      {"FP4-PARAM", R"j({"fp4_param_gather":true})j", R"j({"fp4_param_gather":true,"fp4_format":"e2m1"})j"},
      {"FP8-AND-FP4", R"j({"fp8_format":"e4m3","fp4_format":"e2m1"})j", R"j({"fp4_format":"e2m1"})j"},
      {"FP8-INPUT-STORE", R"j({"activation_func_fp8_input_store":true,"swiglu":false})j", R"j({"activation_func_fp8_input_store":true})j"},
      {"FP8-OUTPUT-PROJ", R"j({"fp8_output_proj":true,"fp8_format":"hybrid"})j", R"j({"fp8_output_proj":true,"fp8_format":"hybrid","fp8_recipe":"mxfp8"})j"},
      {"FP8-PARAM", R"j({"fp8_param_gather":true})j", R"j({"fp8_param_gather":true,"fp8_format":"hybrid"})j"},
      {"FP8-PARAM-OPTIMIZER", R"j({"fp8_param_gather":true,"fp8_format":"hybrid","use_distributed_optimizer":false})j", R"j({"fp8_param_gather":true,"fp8_format":"hybrid"})j"},
      {"FSDP-CHECKPOINTS", R"j({"use_megatron_fsdp":true})j", R"j({"use_megatron_fsdp":true,"ckpt_format":"fsdp_dtensor"})j"},
      {"FSDP-CHECKPOINTS-SAVED", R"j({"use_megatron_fsdp":true,"save":"/checkpoints"})j", R"j({"use_megatron_fsdp":true})j"},
      {"FSDP-MESH-ORDER", R"j({"use_megatron_fsdp":true,"use_tp_pp_dp_mapping":true})j", R"j({"use_megatron_fsdp":true})j"},
      {"FSDP-META-DEVICE", R"j({"use_megatron_fsdp":true,"init_model_with_meta_device":true})j", R"j({"use_megatron_fsdp":true,"init_model_with_meta_device":true,"data_parallel_sharding_strategy":"optim"})j"},
      {"FSDP-OPTIMIZERS", R"j({"use_megatron_fsdp":true,"optimizer":"muon"})j", R"j({"use_megatron_fsdp":true,"optimizer":"sgd"})j"},
      {"FSDP-REGISTRATION", R"j({"fsdp_manual_registration":true,"nccl_ub":true})j", R"j({"fsdp_manual_registration":true,"nccl_ub":true,"use_megatron_fsdp":true})j"},
      {"FSDP-REGISTRATION-BUFFERS", R"j({"fsdp_manual_registration":true,"use_megatron_fsdp":true})j", R"j({"fsdp_manual_registration":true})j"},
      {"FSDP-V2", R"j({"use_megatron_fsdp":true,"megatron_fsdp_version":2})j", R"j({"use_megatron_fsdp":true})j"},
      {"FSDP-V2-DISTRIBUTED", R"j({"use_megatron_fsdp":true,"megatron_fsdp_version":2})j", R"j({"use_megatron_fsdp":true})j"},
      {"GLOO-CHECKPOINTS", R"j({"use_gloo_process_groups":false,"ckpt_format":"torch"})j", R"j({"use_gloo_process_groups":false})j"},
      {"GRADS-FP32", R"j({"main_grads_dtype":"bf16","accumulate_allreduce_grads_in_fp32":true})j", R"j({"accumulate_allreduce_grads_in_fp32":true})j"},
      {"GRADS-TWICE", R"j({"grad_reduce_in_bf16":true,"accumulate_allreduce_grads_in_fp32":true})j", R"j({"grad_reduce_in_bf16":true})j"},
      {"GRAPH-EXPANDABLE-LAUNCH", R"j({"cuda_graph_impl":"transformer_engine","env.PYTORCH_CUDA_ALLOC_CONF":"expandable_segments:True"})j", R"j({"cuda_graph_impl":"transformer_engine","env.PYTORCH_CUDA_ALLOC_CONF":"expandable_segments:True","env.NCCL_GRAPH_REGISTER":"0"})j"},
      {"GRAPH-FSDP2", R"j({"use_megatron_fsdp":true,"megatron_fsdp_version":2,"cuda_graph_impl":"transformer_engine"})j", R"j({"use_megatron_fsdp":true,"cuda_graph_impl":"transformer_engine"})j"},
      {"GRAPH-NAN-CHECK", R"j({"cuda_graph_impl":"full_iteration"})j", R"j({"cuda_graph_impl":"full_iteration","fp16":true,"bf16":false})j"},
      {"GRAPH-OFFLOAD", R"j({"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["attn"],"fine_grained_activation_offloading":true,"offload_modules":["core_attn"],"cuda_graph_warmup_steps":0})j", R"j({"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["attn"],"fine_grained_activation_offloading":true,"offload_modules":["core_attn"]})j"},
      {"GRAPH-OFFLOAD-INFLIGHT", R"j({"cuda_graph_impl":"full_iteration","fine_grained_activation_offloading":true,"offload_modules":["core_attn"]})j", R"j({"cuda_graph_impl":"full_iteration","fine_grained_activation_offloading":true,"offload_modules":["core_attn"],"fine_grained_offloading_max_inflight_offloads":0})j"},
      {"GRAPH-PREPROCESS-COPIES", R"j({"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["moe_router","moe_preprocess"],"moe_expert_capacity_factor":1.0})j", R"j({"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["moe_router","moe_preprocess"],"moe_expert_capacity_factor":1.0,"moe_pad_expert_input_to_capacity":true})j"},
      {"GRAPH-RANDOM-RECOMPUTE", R"j({"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["attn"],"recompute_granularity":"selective","attention_dropout":0.1})j", R"j({"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["attn"],"recompute_granularity":"selective"})j"},
      {"GRAPH-RNG-TRACKER", R"j({"cuda_graph_impl":"transformer_engine","te_rng_tracker":false})j", R"j({"cuda_graph_impl":"transformer_engine","te_rng_tracker":true})j"},
      {"GRAPH-UNKNOWN-MODULE", R"j({"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["router"]})j", R"j({"cuda_graph_impl":"transformer_engine","cuda_graph_modules":["moe_router"]})j"},
      {"GRAPH-WEIGHT-SHARDS", R"j({"cuda_graph_impl":"transformer_engine","tensor_parallel_num_weight_shards":4,"gpu":"b200"})j", R"j({"cuda_graph_impl":"transformer_engine","tensor_parallel_num_weight_shards":4})j"},
      {"GROUPED-GEMM-GPU", R"j({"gpu":"v100"})j", R"j({"gpu":"a100"})j"},
      {"GROUPED-TENSOR-GEMM", R"j({"moe_use_grouped_tensor":true,"moe_grouped_gemm":false})j", R"j({"moe_use_grouped_tensor":true})j"},
      {"GROUPED-TENSOR-NCCLEP", R"j({"moe_use_grouped_tensor":true,"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep"})j", R"j({"moe_use_grouped_tensor":true,"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"hybridep"})j"},
      {"HIDDEN-HEADS", R"j({"kv_channels":null,"num_attention_heads":48})j", R"j({"num_attention_heads":48})j"},
      {"HYBRID-CP", R"j({"hybrid_context_parallel":true})j", R"j({"hybrid_context_parallel":true,"pipeline_model_parallel_size":1,"dataloader_type":"single","calculate_per_token_loss":true})j"},
      {"HYPER-CONNECTIONS", R"j({"enable_hyper_connections":true})j", R"j({"enable_hyper_connections":true,"pipeline_model_parallel_size":1})j"},
      {"INSTANCES-DISTRIBUTED", R"j({"num_distributed_optimizer_instances":2,"use_distributed_optimizer":false})j", R"j({"num_distributed_optimizer_instances":2})j"},
      {"LATENT-SIZE", R"j({"moe_latent_size":0})j", R"j({"moe_latent_size":1024})j"},
      {"LAYOUT-AND-SPLIT", R"j({"pipeline_model_parallel_layout":"Et*24|t*24L","account_for_loss_in_pipeline_split":true})j", R"j({"pipeline_model_parallel_layout":"Et*24|t*24L"})j"},
      {"MAX-CONNECTIONS-LAUNCH", R"j({"env.CUDA_DEVICE_MAX_CONNECTIONS":"8"})j", R"j({"env.CUDA_DEVICE_MAX_CONNECTIONS":"8","gpu":"b200"})j"},
      {"MAX-CONNECTIONS-ONE", R"j({"overlap_moe_expert_parallel_comm":true,"tensor_model_parallel_size":1})j", R"j({"overlap_moe_expert_parallel_comm":true})j"},
      {"MAX-CONNECTIONS-OVERLAP", R"j({"overlap_moe_expert_parallel_comm":true})j", R"j({"overlap_moe_expert_parallel_comm":true,"tensor_model_parallel_size":1})j"},
      {"MAX-POSITIONS", R"j({"max_position_embeddings":2048})j", R"j({"max_position_embeddings":8192})j"},
      {"MESH-ORDER", R"j({"use_tp_pp_dp_mapping":true})j", R"j({"use_tp_pp_dp_mapping":true,"expert_model_parallel_size":2})j"},
      {"MLA-PLAIN", R"j({"multi_latent_attention":true,"rotary_interleaved":true})j", R"j({"multi_latent_attention":true})j"},
      {"MLA-QUERY-GROUPS", R"j({"multi_latent_attention":true})j", R"j({"multi_latent_attention":true,"group_query_attention":false})j"},
      {"MLA-ROPE-FUSION", R"j({"multi_latent_attention":true,"rope_type":"rope"})j", R"j({"multi_latent_attention":true,"rope_type":"yarn"})j"},
      {"MOE-BIAS-ETP", R"j({"add_bias_linear":true,"expert_tensor_parallel_size":2})j", R"j({"add_bias_linear":true})j"},
      {"MOE-LAYER-FREQ", R"j({"moe_layer_freq":"([0]*3+[1]*44)"})j", R"j({"moe_layer_freq":"([0]*3+[1]*45)"})j"},
      {"MTP-HSM", R"j({"mtp_hsm":true,"mtp_num_layers":1})j", R"j({"mtp_hsm":true,"mtp_num_layers":2})j"},
      {"MTP-POSITIONS", R"j({"mtp_num_layers":1,"position_embedding_type":"learned_absolute"})j", R"j({"mtp_num_layers":1})j"},
      {"MXFP8-BUFFERS-ALONE", R"j({"reuse_grad_buf_for_mxfp8_param_ag":true})j", R"j({"reuse_grad_buf_for_mxfp8_param_ag":true,"fp8_format":"e4m3","fp8_recipe":"mxfp8","fp8_param_gather":true})j"},
      {"MXFP8-BUFFERS-STEP", R"j({"reuse_grad_buf_for_mxfp8_param_ag":true,"overlap_param_gather_with_optimizer_step":true})j", R"j({"reuse_grad_buf_for_mxfp8_param_ag":true})j"},
      {"MXFP8-MEMORY", R"j({"fp8_format":"e4m3","fp8_recipe":"mxfp8"})j", R"j({"fp8_format":"e4m3","fp8_recipe":"blockwise"})j"},
      {"NCCL-UB-EXPANDABLE", R"j({"nccl_ub":true,"env.PYTORCH_CUDA_ALLOC_CONF":"expandable_segments:True","pytorch_version":"2.10.0"})j", R"j({"nccl_ub":true,"env.PYTORCH_CUDA_ALLOC_CONF":"expandable_segments:True"})j"},
      {"NCCLEP-CAPACITY", R"j({"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep","moe_expert_capacity_factor":1.0})j", R"j({"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep"})j"},
      {"NCCLEP-FLEX", R"j({"moe_flex_dispatcher_backend":"ncclep"})j", R"j({"moe_flex_dispatcher_backend":"ncclep","moe_token_dispatcher_type":"flex"})j"},
      {"NCCLEP-GROUP", R"j({"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep","expert_model_parallel_size":1})j", R"j({"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep"})j"},
      {"NVFP4-LAST", R"j({"fp4_format":"e2m1"})j", R"j({"fp8_format":"e4m3"})j"},
      {"OFFLOAD-ENV-LAUNCH", R"j({"fine_grained_activation_offloading":true,"offload_modules":["core_attn"],"env.NVTE_CPU_OFFLOAD_V1":"0"})j", R"j({"fine_grained_activation_offloading":true,"offload_modules":["core_attn"]})j"},
      {"OFFLOAD-IMPL", R"j({"fine_grained_activation_offloading":true,"offload_modules":["core_attn"],"transformer_impl":"local"})j", R"j({"transformer_impl":"local"})j"},
      {"OFFLOAD-LAST", R"j({"cpu_offloading_num_layers":4})j", R"j({"cpu_offloading_num_layers":0})j"},
      {"OFFLOAD-MODULES", R"j({"fine_grained_activation_offloading":true})j", R"j({"fine_grained_activation_offloading":true,"offload_modules":["moe_act"]})j"},
      {"OFFLOAD-RECOMPUTED", R"j({"fine_grained_activation_offloading":true,"offload_modules":["core_attn"],"recompute_granularity":"selective","recompute_modules":["mhc"]})j", R"j({"fine_grained_activation_offloading":true,"offload_modules":["core_attn"],"recompute_granularity":"selective","recompute_modules":["moe_act"]})j"},
      {"OFFLOAD-SIZES", R"j({"fine_grained_activation_offloading":true,"offload_modules":["core_attn"],"min_offloaded_tensor_size":-1})j", R"j({"fine_grained_activation_offloading":true,"offload_modules":["core_attn"],"min_offloaded_tensor_size":0})j"},
      {"OPTIMIZER-INSTANCES", R"j({"num_distributed_optimizer_instances":3})j", R"j({"num_distributed_optimizer_instances":2})j"},
      {"OPTIMIZER-OFFLOAD-FP8", R"j({"optimizer_cpu_offload":true,"fp8_format":"hybrid","fp8_recipe":"tensorwise","fp8_param_gather":true})j", R"j({"optimizer_cpu_offload":true,"fp8_format":"hybrid","fp8_param_gather":true})j"},
      {"OPTIMIZER-OFFLOAD-LAUNCH", R"j({"optimizer_cpu_offload":true})j", R"j({"optimizer_cpu_offload":true,"use_precision_aware_optimizer":true})j"},
      {"P2P-OVERLAP-AND-BATCH", R"j({"overlap_p2p_comm":true,"batch_p2p_comm":true})j", R"j({"overlap_p2p_comm":true})j"},
      {"P2P-OVERLAP-PLAIN", R"j({"overlap_p2p_comm":true,"num_virtual_stages_per_pipeline_rank":null})j", R"j({"num_virtual_stages_per_pipeline_rank":null})j", true},
      {"P2P-WARMUP-FLUSH", R"j({"overlap_p2p_comm_warmup_flush":true,"num_virtual_stages_per_pipeline_rank":null})j", R"j({"overlap_p2p_comm_warmup_flush":true})j"},
      {"PAGED-STASH-CAPACITY", R"j({"moe_paged_stash":true})j", R"j({"moe_paged_stash":true,"moe_expert_rank_capacity_factor":1.5})j"},
      {"PARAM-GATHER-DISTRIBUTED", R"j({"use_distributed_optimizer":false})j", R"j({"use_distributed_optimizer":false,"overlap_param_gather":false})j"},
      {"PARAM-GATHER-REDUCE", R"j({"overlap_grad_reduce":false})j", R"j({"overlap_grad_reduce":false,"overlap_param_gather":false})j"},
      {"PARAM-GATHER-STEP", R"j({"overlap_param_gather_with_optimizer_step":true})j", R"j({"overlap_param_gather_with_optimizer_step":true,"ckpt_format":"torch"})j"},
      {"PARTIAL-CHECKPOINTS-OVERLAP", R"j({"num_microbatches_with_partial_activation_checkpoints":2,"overlap_moe_expert_parallel_comm":true})j", R"j({"overlap_moe_expert_parallel_comm":true})j"},
      {"PER-TOKEN-LOSS", R"j({"calculate_per_token_loss":true,"ddp_average_in_collective":true})j", R"j({"calculate_per_token_loss":true})j"},
      {"PIPELINE-LAYOUT-DECODERS", R"j({"pipeline_model_parallel_layout":"Et*24|t*23L"})j", R"j({"pipeline_model_parallel_layout":"Et*24|t*24L"})j"},
      {"PIPELINE-LAYOUT-ENDS", R"j({"pipeline_model_parallel_layout":"t*24|t*24L"})j", R"j({"pipeline_model_parallel_layout":"Et*24|t*24L"})j"},
      {"PIPELINE-LAYOUT-LETTERS", R"j({"pipeline_model_parallel_layout":"Et*24|x*24L"})j", R"j({"pipeline_model_parallel_layout":"E,t*24|t*24,L"})j"},
      {"PIPELINE-LAYOUT-MTP", R"j({"pipeline_model_parallel_layout":"Et*24|t*24mL"})j", R"j({"pipeline_model_parallel_layout":"Et*24|t*24mL","mtp_num_layers":1})j"},
      {"PIPELINE-LAYOUT-MTP-STAGE", R"j({"pipeline_model_parallel_layout":"Et*24|t*24m||L"})j", R"j({"pipeline_model_parallel_layout":"Et*48m|L"})j"},
      {"PIPELINE-LAYOUT-ORDER", R"j({"pipeline_model_parallel_layout":"Et*24|mt*24L"})j", R"j({"pipeline_model_parallel_layout":"Et*24|t*24mL"})j"},
      {"PIPELINE-LAYOUT-STAGES", R"j({"pipeline_model_parallel_layout":"Et*24|t*24|L"})j", R"j({"pipeline_model_parallel_layout":"Et*24|t*24||L"})j"},
      {"PIPELINE-LAYOUT-VPP", R"j({"pipeline_model_parallel_layout":"Et*24|t*24L"})j", R"j({"pipeline_model_parallel_layout":"Et*24|t*24||L"})j"},
      {"PRECISION-AWARE-ADAM", R"j({"use_precision_aware_optimizer":true,"optimizer":"sgd"})j", R"j({"use_precision_aware_optimizer":true})j"},
      {"PROBS-ON-INPUT", R"j({"moe_apply_probs_on_input":true})j", R"j({"moe_apply_probs_on_input":true,"moe_router_topk":1})j"},
      {"RANK-CAPACITY-NCCLEP", R"j({"moe_expert_rank_capacity_factor":1.5,"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep"})j", R"j({"moe_expert_rank_capacity_factor":1.5,"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep","use_transformer_engine_op_fuser":true})j"},
      {"RANK-CAPACITY-NCCLEP-FP8", R"j({"moe_expert_rank_capacity_factor":1.5,"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep","fp8_format":"e4m3"})j", R"j({"moe_expert_rank_capacity_factor":1.5,"moe_token_dispatcher_type":"flex","moe_flex_dispatcher_backend":"ncclep"})j"},
      {"RECOMPUTE-FULL-LAST", R"j({"recompute_granularity":"full"})j", R"j({"recompute_granularity":"selective"})j"},
      {"RECOMPUTE-GRANULARITY", R"j({"recompute_granularity":"block"})j", R"j({"recompute_granularity":"full"})j"},
      {"RECOMPUTE-MODULES", R"j({"recompute_granularity":"selective","recompute_modules":["attention"]})j", R"j({"recompute_modules":["attention"]})j"},
      {"RECOMPUTE-MOE-ACT", R"j({"recompute_granularity":"selective","recompute_modules":["moe_act"],"moe_grouped_gemm":false})j", R"j({"recompute_granularity":"selective","recompute_modules":["moe_act"]})j"},
      {"RECOMPUTE-MOE-LAYER", R"j({"moe_layer_recompute":true,"recompute_granularity":"full"})j", R"j({"moe_layer_recompute":true})j"},
      {"RECOMPUTE-SELECTIVE-METHOD", R"j({"recompute_granularity":"selective","recompute_method":"block"})j", R"j({"recompute_granularity":"selective"})j"},
      {"ROPE-TYPE", R"j({"rope_type":"yarn"})j", R"j({"rope_type":"rope"})j"},
      {"ROUTER-EXPERT-BIAS", R"j({"moe_router_enable_expert_bias":true})j", R"j({"moe_router_enable_expert_bias":true,"moe_router_score_function":"sigmoid"})j"},
      {"ROUTER-TOP1-SOFTMAX", R"j({"moe_router_topk":1})j", R"j({"moe_router_topk":1,"moe_router_pre_softmax":true})j"},
      {"SAVED-ACTIVATIONS", R"j({"distribute_saved_activations":true})j", R"j({"distribute_saved_activations":true,"sequence_parallel":false,"recompute_granularity":"full","recompute_method":"block"})j"},
      {"SAVED-ACTIVATIONS-SP", R"j({"distribute_saved_activations":true,"recompute_granularity":"selective"})j", R"j({"distribute_saved_activations":true,"sequence_parallel":false})j"},
      {"SHARDS-FP4", R"j({"tensor_parallel_num_weight_shards":4,"fp4_format":"e2m1"})j", R"j({"tensor_parallel_num_weight_shards":4,"fp4_format":"e2m1","fp4_param_gather":true})j"},
      {"SHARDS-MXFP8", R"j({"tensor_parallel_num_weight_shards":4,"fp8_format":"e4m3","fp8_recipe":"mxfp8"})j", R"j({"tensor_parallel_num_weight_shards":4,"fp8_format":"e4m3","fp8_recipe":"tensorwise"})j"},
      {"SHARED-EXPERT-SIZE", R"j({"moe_shared_expert_intermediate_size":0})j", R"j({"moe_shared_expert_intermediate_size":768})j"},
      {"SINGLE-WEIGHT-FSDP", R"j({"moe_single_grouped_weight":true,"use_megatron_fsdp":true})j", R"j({"moe_single_grouped_weight":true})j"},
      {"SINGLE-WEIGHT-PRECISION", R"j({"moe_single_grouped_weight":true,"fp8_format":"hybrid"})j", R"j({"moe_single_grouped_weight":true,"fp8_format":"e4m3","fp8_recipe":"mxfp8"})j"},
      {"SINGLE-WEIGHT-TE", R"j({"moe_single_grouped_weight":true})j", R"j({"moe_single_grouped_weight":true,"te_version":"2.14.0"})j"},
      {"SINGLE-WEIGHT-TENSOR", R"j({"moe_single_grouped_weight":true})j", R"j({"moe_single_grouped_weight":true,"moe_use_grouped_tensor":true})j"},
      {"TORCH-DCP", R"j({"ckpt_format":"torch_dcp"})j", R"j({"ckpt_format":"torch_dcp","use_torch_fsdp2":true,"tensor_model_parallel_size":1,"pipeline_model_parallel_size":1})j"},
      {"TORCH-FSDP-MESH", R"j({"use_torch_fsdp2":true})j", R"j({"use_torch_fsdp2":true,"pipeline_model_parallel_size":1,"expert_model_parallel_size":1})j"},
      {"TORCH-FSDP-OPTIMIZER", R"j({"use_torch_fsdp2":true})j", R"j({"use_torch_fsdp2":true,"use_distributed_optimizer":false})j"},
      {"TORCH-FSDP-PLAIN", R"j({"use_torch_fsdp2":true})j", R"j({"use_torch_fsdp2":true,"gradient_accumulation_fusion":false,"env.CUDA_DEVICE_MAX_CONNECTIONS":"8"})j"},
      {"TP-OVERLAP-SP", R"j({"tp_comm_overlap":true,"sequence_parallel":false})j", R"j({"tp_comm_overlap":true})j"},
      {"VPP-LAYERS-COUNTED-ENDS", R"j({"num_virtual_stages_per_pipeline_rank":null,"num_layers_per_virtual_pipeline_stage":12,"decoder_first_pipeline_num_layers":24})j", R"j({"num_virtual_stages_per_pipeline_rank":null,"num_layers_per_virtual_pipeline_stage":12})j"},
      {"VPP-LAYERS-DIVIDE", R"j({"num_virtual_stages_per_pipeline_rank":null,"num_layers_per_virtual_pipeline_stage":11})j", R"j({"num_virtual_stages_per_pipeline_rank":null,"num_layers_per_virtual_pipeline_stage":12})j"},
      {"VPP-P2P-OVERLAP", R"j({"overlap_p2p_comm":false})j", R"j({"overlap_p2p_comm":false,"pipeline_model_parallel_size":4})j"},
      {"VPP-STATED-TWICE", R"j({"num_layers_per_virtual_pipeline_stage":12})j", R"j({"num_virtual_stages_per_pipeline_rank":null,"num_layers_per_virtual_pipeline_stage":12})j"},
      {"WEIGHT-SHARDS", R"j({"tensor_parallel_num_weight_shards":3})j", R"j({"tensor_parallel_num_weight_shards":4})j"},
      {"WGRAD-APART", R"j({"overlap_moe_expert_parallel_comm":true,"delay_wgrad_compute":true})j", R"j({"overlap_moe_expert_parallel_comm":true})j"},
      {"WGRAD-UNDER-DISPATCH", R"j({"overlap_dispatch_backward_with_experts_wgrad":true,"overlap_moe_expert_parallel_comm":true})j", R"j({"overlap_dispatch_backward_with_experts_wgrad":true})j"},
      {"WGRAD-UNDER-DISPATCH-TE", R"j({"overlap_dispatch_backward_with_experts_wgrad":true,"te_version":"2.2.0"})j", R"j({"overlap_dispatch_backward_with_experts_wgrad":true})j"},
};
// clang-format on

}  // namespace

const std::vector<OptionCase>& option_cases() { return kOptionCases; }

}  // namespace moecast::test
