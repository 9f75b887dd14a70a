#include "layout/layout_config.hpp"

#include <algorithm>

#include "layout/enum_names.hpp"
#include "layout/megatron_config.hpp"

namespace moecast {
namespace {

/// The enum's spelling is Megatron's word.
template <typename E>
Word word_of(E value) {
  static constexpr auto kWords = [] {
    std::array<Word, kEnumNames<E>.size()> words{};
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = find_word(kEnumNames<E>[i].text);
    return words;
  }();
  return kWords[static_cast<std::size_t>(value)];
}

template <typename E>
Words words_of(ModuleSet<E> modules) {
  Words words;
  words.given = true;
  for (std::size_t i = 0; i < kEnumNames<E>.size(); ++i) {
    if (modules.has(kEnumNames<E>[i].value)) words.add(word_of(kEnumNames<E>[i].value));
  }
  return words;
}

std::optional<int> stated(int value, int unset = 0) {
  return value == unset ? std::nullopt : std::optional(value);
}

void set_mesh(MegatronKnobs& k, const Layout& l) {
  k.tensor_model_parallel_size = l.tp;
  k.pipeline_model_parallel_size = l.pp;
  k.context_parallel_size = l.cp;
  k.expert_model_parallel_size = l.ep;
  k.expert_tensor_parallel_size = l.etp;
  k.num_virtual_stages_per_pipeline_rank = stated(l.vpp, 1);
  k.micro_batch_size = l.micro_batch_size;
  k.microbatch_group_size_per_vp_stage = stated(l.microbatch_group_size_per_vp_stage);
  k.sequence_parallel = l.sp();
  k.cp_comm_type = l.cp_comm_type == CpCommType::p2p ? Words{} : Words{word_of(l.cp_comm_type)};
}

void set_precision(MegatronKnobs& k, const Layout& l) {
  const Precision p = l.precision;
  const bool fp8 = p != Precision::bf16 && p != Precision::nvfp4;
  k.bf16 = true;
  k.fp8_format = !fp8 ? Word{} : p == Precision::mxfp8 ? "e4m3"_w : "hybrid"_w;
  k.fp8_recipe = p == Precision::fp8_delayed     ? "delayed"_w
                 : p == Precision::fp8_blockwise ? "blockwise"_w
                 : p == Precision::mxfp8         ? "mxfp8"_w
                                                 : "tensorwise"_w;
  // Bridge's recipes: every format but blockwise gathers quantised parameters
  k.fp8_param_gather = fp8 && p != Precision::fp8_blockwise;
  k.reuse_grad_buf_for_mxfp8_param_ag = p == Precision::mxfp8 && l.fsdp == FsdpSharding::none;
  k.fp4_format = p == Precision::nvfp4 ? "e2m1"_w : Word{};
  k.fp4_param_gather = p == Precision::nvfp4;
}

void set_moe(MegatronKnobs& k, const Layout& l) {
  const bool flex = l.dispatcher == Dispatcher::deepep || l.dispatcher == Dispatcher::hybridep;
  k.moe_token_dispatcher_type = flex ? "flex"_w : word_of(l.dispatcher);
  k.moe_flex_dispatcher_backend = flex ? word_of(l.dispatcher) : Word{};
  k.moe_flex_dispatcher_num_sms = stated(l.dispatcher_num_sms);
  k.overlap_moe_expert_parallel_comm = l.overlap_moe_expert_parallel_comm;
  k.delay_wgrad_compute = l.delay_wgrad_compute;
  k.moe_shared_expert_overlap = l.moe_shared_expert_overlap;
}

void set_memory(MegatronKnobs& k, const Layout& l) {
  k.recompute_granularity = l.recompute_granularity == RecomputeGranularity::none
                                ? Word{}
                                : word_of(l.recompute_granularity);
  k.recompute_method =
      l.recompute_method == RecomputeMethod::none ? Word{} : word_of(l.recompute_method);
  k.recompute_num_layers = stated(l.recompute_num_layers);
  k.recompute_modules = words_of(l.recompute_modules);
  k.fine_grained_activation_offloading = !l.offload_modules.empty();
  k.offload_modules = words_of(l.offload_modules);
  k.activation_offload_fraction = l.offload_fraction;
  k.optimizer_cpu_offload = l.optimizer_offload_fraction > 0;
  k.optimizer_offload_fraction = l.optimizer_offload_fraction;
  k.cpu_offloading_num_layers = l.cpu_offloading_num_layers;
  k.cpu_offloading = l.cpu_offloading_num_layers > 0;
  k.cuda_graph_impl = word_of(l.cuda_graph_impl);
  k.cuda_graph_modules = words_of(l.cuda_graph_scope);
  // what every recipe with graphs sets beside them
  k.te_rng_tracker = l.cuda_graph_impl != CudaGraphImpl::none;
  k.check_for_nan_in_loss_and_grad = l.cuda_graph_impl != CudaGraphImpl::full_iteration;
}

void set_training(MegatronKnobs& k, const Layout& l) {
  k.use_distributed_optimizer = l.distributed_optimizer;
  k.use_precision_aware_optimizer = l.precision_aware_optimizer;
  k.main_params_dtype = word_of(l.master_dtype);
  k.exp_avg_dtype = k.exp_avg_sq_dtype = word_of(l.moment_dtype);
  k.accumulate_allreduce_grads_in_fp32 = l.grad_dtype == DType::fp32;
  k.grad_reduce_in_bf16 = l.grad_dtype == DType::bf16;
  k.overlap_grad_reduce = l.overlap_grad_reduce;
  k.overlap_param_gather = l.overlap_param_gather;
  k.tp_comm_overlap = l.tp_comm_overlap;
  k.use_megatron_fsdp = l.fsdp != FsdpSharding::none;
  k.data_parallel_sharding_strategy =
      l.fsdp == FsdpSharding::none ? "no_shard"_w : "optim_grads_params"_w;
  k.ckpt_format = k.use_megatron_fsdp ? "fsdp_dtensor"_w : "torch_dist"_w;
}

bool feature(const Run& run, const std::string& name) {
  const auto found = run.software.features.find(name);
  return found != run.software.features.end() && found->second;
}

void set_features(MegatronConfig& c, const Run& run) {
  c.moe_permute_fusion = feature(run, "permute_fusion");
  c.moe_router_fusion = feature(run, "router_fusion");
  c.use_transformer_engine_op_fuser = feature(run, "fused_grouped_mlp");
  c.moe_use_grouped_tensor = feature(run, "moe_use_grouped_tensor");
  c.moe_router_padding_for_quantization = feature(run, "moe_router_padding_for_quantization");
  c.first_last_layers_bf16 = feature(run, "first_last_layers_bf16");
  if (feature(run, "router_dtype_fp32")) c.moe_router_dtype = "fp32"_w;
  if (feature(run, "paged_stash")) {
    c.moe_paged_stash = true;
    c.moe_expert_rank_capacity_factor = 1.5;
  }
  if (run.capacity_factor > 0) {
    c.moe_expert_capacity_factor = run.capacity_factor;
    c.moe_pad_expert_input_to_capacity = true;
  }
  c.moe_router_force_load_balancing = run.routing.kind == Routing::Kind::force_balance;
  c.te_version = run.software.transformer_engine;
  c.pytorch_version = run.software.pytorch;
  c.megatron_core_version = run.software.megatron_core;
  c.bridge_version = run.software.bridge;
  c.env = run.software.env;
}

void set_mixer(MegatronConfig& c, const Mixer& m) {
  switch (m.kind) {
    case MixerKind::gqa:
    case MixerKind::mla:
    case MixerKind::csa:
      if (c.num_attention_heads > 0) return;  // the first attention speaks for all
      c.num_attention_heads = m.num_attention_heads;
      c.qk_layernorm = m.qk_layernorm;
      c.attention_output_gate = m.attention_output_gate;
      if (m.kind == MixerKind::gqa) {
        c.group_query_attention = m.num_query_groups != m.num_attention_heads;
        c.num_query_groups = m.num_query_groups;
        c.kv_channels = m.qk_head_dim;
        return;
      }
      c.multi_latent_attention = true;
      c.rope_type = "yarn"_w;
      c.q_lora_rank = stated(m.q_lora_rank);
      c.kv_lora_rank = m.kv_lora_rank;
      c.qk_head_dim = m.qk_head_dim;
      c.qk_pos_emb_head_dim = m.qk_pos_emb_head_dim;
      c.v_head_dim = m.v_head_dim;
      if (m.kind == MixerKind::mla && m.index_n_heads > 0)
        c.experimental_attention_variant = "dsa"_w;
      return;
    case MixerKind::gdn:
      c.linear_num_key_heads = m.linear_num_key_heads;
      c.linear_num_value_heads = m.linear_num_value_heads;
      if (!c.experimental_attention_variant) c.experimental_attention_variant = "gated_delta_net"_w;
      return;
    case MixerKind::mamba:
      c.mamba_num_heads = m.mamba_num_heads;
      c.mamba_num_groups = m.mamba_num_groups;
      return;
    default:
      return;
  }
}

void set_experts(MegatronConfig& c, const ModelSpec& model) {
  const MoeSpec& m = model.moe;
  if (m.num_moe_experts == 0) return;
  c.num_experts = m.num_moe_experts;
  c.moe_router_topk = m.moe_router_topk;
  c.moe_ffn_hidden_size = m.moe_ffn_hidden_size;
  c.moe_shared_expert_intermediate_size = stated(m.moe_shared_expert_intermediate_size);
  c.moe_latent_size = stated(m.moe_latent_size);
  c.moe_router_num_groups = stated(m.moe_router_num_groups);
  c.moe_router_group_topk = stated(m.moe_router_group_topk);
  c.moe_router_score_function = m.sigmoid_router ? "sigmoid"_w : "softmax"_w;
  c.moe_router_enable_expert_bias = m.expert_bias && m.sigmoid_router;
  c.moe_router_pre_softmax = m.moe_router_topk == 1 && !m.sigmoid_router;
  c.moe_grouped_gemm = true;
  c.moe_layer_freq.clear();
  for (const LayerKind& layer : model.layers)
    c.moe_layer_freq.push_back(layer.ffn == FfnKind::moe ? 1 : 0);
}

void set_model(MegatronConfig& c, const ModelSpec& model) {
  c.num_layers = static_cast<int>(model.layers.size());
  c.hidden_size = model.hidden_size;
  c.ffn_hidden_size = stated(model.ffn_hidden_size);
  c.vocab_size = model.vocab_size;
  c.swiglu = model.gated_linear_unit;
  c.squared_relu = !model.gated_linear_unit;
  c.normalization = model.layernorm ? "LayerNorm"_w : "RMSNorm"_w;
  c.position_embedding_type = "rope"_w;
  c.untie_embeddings_and_output_weights = model.untie_embeddings_and_output_weights;
  c.add_bias_linear = model.add_bias_linear;
  c.mtp_num_layers = stated(model.mtp_num_layers);
  c.enable_hyper_connections = model.hyper_connections > 0;
  c.attention_dropout = c.hidden_dropout = 0;
  c.apply_rope_fusion = false;
  for (const Mixer& m : model.mixers) {
    set_mixer(c, m);
    c.add_qkv_bias = c.add_qkv_bias || m.add_qkv_bias;
  }
  set_experts(c, model);
}

bool has_ffn(const ModelSpec& model, FfnKind kind) {
  return std::any_of(model.layers.begin(), model.layers.end(),
                     [kind](const LayerKind& layer) { return layer.ffn == kind; });
}

}  // namespace

void set_layout(MegatronKnobs& knobs, const Layout& layout) {
  set_mesh(knobs, layout);
  set_precision(knobs, layout);
  set_moe(knobs, layout);
  set_memory(knobs, layout);
  set_training(knobs, layout);
}

MegatronConfig megatron_config_of(const Run& run, const ModelSpec& model, Flavour flavour) {
  MegatronConfig c = default_config(flavour);
  set_model(c, model);
  set_features(c, run);
  set_layout(c, run.layout);
  c.gpu = run.system;
  c.world_size = run.gpus;
  c.seq_length = run.seq_length;
  c.max_position_embeddings = run.seq_length;
  c.global_batch_size = run.global_batch_size;
  if (run.layout.pipeline_split == PipelineSplit::explicit_string)
    c.pipeline_model_parallel_layout = run.pipeline_model_parallel_layout;
  return c;
}

Surroundings surroundings_of(const MegatronConfig& config, const Run& run, const ModelSpec& model,
                             const System& system, const Versions& versions, Flavour flavour) {
  Surroundings at = surroundings_of(config, flavour);
  at.run_file = true;
  at.versions = versions;
  at.model = model.name;
  at.gpu = system.gpu.name;
  at.compute_capability = system.gpu.compute_capability;
  at.grace = system.grace;
  at.gpus_per_node = system.gpus_per_node;
  at.gpus_per_nvlink_domain = system.gpus_per_nvlink_domain;
  at.gpus_used_per_domain = run.gpus_used_per_domain;
  at.has_dense_layer = has_ffn(model, FfnKind::dense);
  at.has_moe_layer = has_ffn(model, FfnKind::moe);
  at.auto_split = run.layout.pipeline_split == PipelineSplit::automatic;
  at.static_dispatch = feature(run, "static_dispatch");
  at.overlap_with_recompute = feature(run, "overlap_with_recompute");
  at.attention.clear();
  for (const Mixer& m : model.mixers) {
    if (m.kind == MixerKind::gqa || m.kind == MixerKind::mla || m.kind == MixerKind::csa)
      at.attention.push_back({m.num_attention_heads, m.num_query_groups, m.kind != MixerKind::gqa});
  }
  return at;
}

}  // namespace moecast
