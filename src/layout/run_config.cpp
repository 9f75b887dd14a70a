#include "layout/run_config.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "layout/enum_names.hpp"
#include "layout/megatron_import.hpp"
#include "layout/pipeline_plan.hpp"

namespace moecast {
namespace {

std::optional<int> above_zero(int value) { return value > 0 ? std::optional(value) : std::nullopt; }

template <typename E>
Words words_of(ModuleSet<E> set) {
  Words words;
  for (const std::string& name : module_names(set)) words.add(find_word(name));
  return words;
}

template <typename E>
Word word_of(E value) {
  const std::string_view text = enum_text(value);
  return text == "null" ? Word{} : find_word(text);
}

void describe_attention(const Mixer& x, MegatronConfig& c) {
  c.num_attention_heads = x.num_attention_heads;
  c.multi_latent_attention = x.kind == MixerKind::mla;
  c.qk_layernorm = x.qk_layernorm || x.kind == MixerKind::mla;
  if (x.kind == MixerKind::mla) {
    c.q_lora_rank = above_zero(x.q_lora_rank);
    c.kv_lora_rank = x.kv_lora_rank;
    c.qk_head_dim = x.qk_head_dim;
    c.qk_pos_emb_head_dim = x.qk_pos_emb_head_dim;
    c.v_head_dim = x.v_head_dim;
    return;
  }
  c.group_query_attention = x.num_query_groups != x.num_attention_heads;
  if (c.group_query_attention) c.num_query_groups = x.num_query_groups;
  c.kv_channels = x.qk_head_dim;
  c.attention_output_gate = x.attention_output_gate;
  c.add_qkv_bias = x.add_qkv_bias;
  if (x.sinks) c.softmax_type = "learnable"_w;
}

void describe_experts(const ModelSpec& m, MegatronConfig& c) {
  const MoeSpec& e = m.moe;
  if (e.num_moe_experts < 1) return;
  c.num_experts = e.num_moe_experts;
  c.moe_router_topk = e.moe_router_topk;
  c.moe_ffn_hidden_size = e.moe_ffn_hidden_size;
  c.moe_shared_expert_intermediate_size = above_zero(e.moe_shared_expert_intermediate_size);
  c.moe_latent_size = above_zero(e.moe_latent_size);
  c.moe_router_num_groups = above_zero(e.moe_router_num_groups);
  c.moe_router_group_topk = above_zero(e.moe_router_group_topk);
  if (e.sigmoid_router) c.moe_router_score_function = "sigmoid"_w;
  c.moe_router_enable_expert_bias = e.expert_bias;
  c.moe_grouped_gemm = true;
  std::vector<int> freq;
  for (const LayerKind& layer : m.layers) freq.push_back(layer.ffn == FfnKind::moe ? 1 : 0);
  if (std::find(freq.begin(), freq.end(), 0) != freq.end()) c.moe_layer_freq = std::move(freq);
}

void describe_model(const ModelSpec& m, int seq_length, MegatronConfig& c) {
  c.num_layers = static_cast<int>(m.layers.size());
  c.hidden_size = m.hidden_size;
  c.ffn_hidden_size = m.ffn_hidden_size > 0 ? m.ffn_hidden_size : m.moe.moe_ffn_hidden_size;
  c.vocab_size = m.vocab_size;
  c.max_position_embeddings = seq_length;
  c.position_embedding_type = "rope"_w;
  c.normalization = m.layernorm ? "LayerNorm"_w : "RMSNorm"_w;
  c.swiglu = m.gated_linear_unit;
  c.squared_relu = !m.gated_linear_unit;
  c.add_bias_linear = m.add_bias_linear;
  c.untie_embeddings_and_output_weights = m.untie_embeddings_and_output_weights;
  c.attention_dropout = c.hidden_dropout = 0;
  c.mtp_num_layers = above_zero(m.mtp_num_layers);
  describe_attention(m.mixers.at(1), c);
  describe_experts(m, c);
}

void describe_sizes(const Run& run, const ModelSpec& m, MegatronConfig& c) {
  const Layout& l = run.layout;
  c.world_size = run.gpus;
  c.gpu = gpu_of_system(run.system);
  c.tensor_model_parallel_size = l.tp;
  c.pipeline_model_parallel_size = l.pp;
  c.context_parallel_size = l.cp;
  c.expert_model_parallel_size = l.ep;
  if (m.moe.num_moe_experts > 0 || l.etp > 1) c.expert_tensor_parallel_size = l.etp;
  c.sequence_parallel = l.sp();
  c.micro_batch_size = l.micro_batch_size;
  c.global_batch_size = run.global_batch_size;
  c.seq_length = run.seq_length;
  c.microbatch_group_size_per_vp_stage = above_zero(l.microbatch_group_size_per_vp_stage);
}

/// One of chunks and layout string for Megatron-LM, which refuses both; Bridge wants both.
Diagnostics describe_split(const Run& run, const ModelSpec& m, Flavour flavour, MegatronConfig& c) {
  const Layout& l = run.layout;
  const auto plan = plan_pipeline(m, l, run.pipeline_model_parallel_layout, run.seq_length);
  if (!plan) return plan.problems();
  c.pipeline_model_parallel_layout = l.pipeline_split == PipelineSplit::explicit_string
                                         ? run.pipeline_model_parallel_layout
                                         : plan.value().layout_string;
  const bool chunks = flavour == Flavour::bridge || c.pipeline_model_parallel_layout.empty();
  if (chunks && plan.value().vpp > 1) c.num_virtual_stages_per_pipeline_rank = plan.value().vpp;
  return {};
}

void describe_precision(const Run& run, MegatronConfig& c) {
  for (const PrecisionNames& names : precision_names())
    if (names.precision == run.layout.precision) set_precision(c, names);
}

void describe_experts_layout(const Run& run, MegatronConfig& c) {
  const Layout& l = run.layout;
  const bool flex = l.dispatcher == Dispatcher::deepep || l.dispatcher == Dispatcher::hybridep;
  c.moe_token_dispatcher_type = flex ? "flex"_w : word_of(l.dispatcher);
  if (flex) c.moe_flex_dispatcher_backend = word_of(l.dispatcher);
  if (flex) c.moe_flex_dispatcher_num_sms = above_zero(l.dispatcher_num_sms);
  c.overlap_moe_expert_parallel_comm = l.overlap_moe_expert_parallel_comm;
  c.delay_wgrad_compute = l.delay_wgrad_compute;
  c.moe_shared_expert_overlap = l.moe_shared_expert_overlap;
  c.moe_router_force_load_balancing = run.routing.kind == Routing::Kind::force_balance;
  if (run.capacity_factor > 0) {
    c.moe_expert_capacity_factor = run.capacity_factor;
    c.moe_pad_expert_input_to_capacity = true;
  }
}

void describe_memory(const Layout& l, Flavour flavour, MegatronConfig& c) {
  if (l.recompute_granularity != RecomputeGranularity::none)
    c.recompute_granularity = word_of(l.recompute_granularity);
  c.recompute_method = word_of(l.recompute_method);
  c.recompute_num_layers = above_zero(l.recompute_num_layers);
  if (!l.recompute_modules.empty()) c.recompute_modules = words_of(l.recompute_modules);
  c.fine_grained_activation_offloading = !l.offload_modules.empty();
  if (!l.offload_modules.empty()) c.offload_modules = words_of(l.offload_modules);
  c.activation_offload_fraction = l.offload_fraction;
  c.optimizer_cpu_offload = l.optimizer_offload_fraction > 0;
  if (c.optimizer_cpu_offload) c.optimizer_offload_fraction = l.optimizer_offload_fraction;
  c.cpu_offloading_num_layers = l.cpu_offloading_num_layers;
  c.cpu_offloading = l.cpu_offloading_num_layers > 0 && flavour == Flavour::bridge;
  c.cuda_graph_impl = word_of(l.cuda_graph_impl);
  if (!l.cuda_graph_scope.empty()) c.cuda_graph_modules = words_of(l.cuda_graph_scope);
  // a graph of the iteration cannot hold the host's look at the loss
  if (l.cuda_graph_impl == CudaGraphImpl::full_iteration) c.check_for_nan_in_loss_and_grad = false;
  if (flavour == Flavour::bridge && l.cuda_graph_impl != CudaGraphImpl::none)
    c.te_rng_tracker = true;
}

void describe_optimizer(const Layout& l, MegatronConfig& c) {
  c.use_distributed_optimizer = l.distributed_optimizer;
  c.use_precision_aware_optimizer = l.precision_aware_optimizer;
  c.grad_reduce_in_bf16 = l.grad_dtype == DType::bf16;
  c.accumulate_allreduce_grads_in_fp32 = l.grad_dtype == DType::fp32;
  c.main_params_dtype = word_of(l.master_dtype);
  c.exp_avg_dtype = c.exp_avg_sq_dtype = word_of(l.moment_dtype);
  c.overlap_grad_reduce = l.overlap_grad_reduce;
  c.overlap_param_gather = l.overlap_param_gather;
  c.tp_comm_overlap = l.tp_comm_overlap;
  if (l.cp_comm_type != CpCommType::p2p) c.cp_comm_type = Words{word_of(l.cp_comm_type)};
  if (l.fsdp == FsdpSharding::none) return;
  c.use_megatron_fsdp = true;
  c.data_parallel_sharding_strategy = word_of(l.fsdp);
  c.ckpt_format = "fsdp_dtensor"_w;
}

void describe_software(const Software& s, const Software& asked, MegatronConfig& c) {
  c.te_version = s.transformer_engine;
  c.pytorch_version = s.pytorch;
  c.megatron_core_version = s.megatron_core;
  c.bridge_version = s.bridge;
  c.env = s.env;
  const auto capacity = c.env.find("moe_expert_rank_capacity_factor");
  if (capacity != c.env.end()) {  // an option, though the run file keeps it with the environment
    double factor = 0;
    const std::string& text = capacity->second;
    std::from_chars(text.data(), text.data() + text.size(), factor);
    if (factor > 0) c.moe_expert_rank_capacity_factor = factor;
    c.env.erase(capacity);
  }
  for (const FeatureField& f : feature_fields()) {
    // the precision's recipe decides about gathering unless the run does
    const auto& features = f.feature == "fp8_param_gather" ? asked.features : s.features;
    const auto found = features.find(std::string(f.feature));
    if (found == features.end()) continue;
    if (f.on.empty()) {
      set(c, f.field, found->second);
    } else if (found->second) {
      set(c, f.field, nlohmann::json(f.on));
    }
  }
  if (!c.fp8_param_gather) c.reuse_grad_buf_for_mxfp8_param_ag = false;
  if (!c.fp8_format) c.fp8_param_gather = c.fp8_output_proj = false;
  if (c.cross_entropy_fusion_impl == "te"_w) c.cross_entropy_loss_fusion = true;
  if (c.num_experts.value_or(0) < 1) {  // options of experts are for models with experts
    c.moe_router_dtype = {};
    c.moe_permute_fusion = c.moe_router_fusion = c.moe_paged_stash = false;
  }
}

}  // namespace

bool has_gpt_options(const ModelSpec& m) {
  if (m.hybrid || m.hyper_connections > 0 || m.mixers.size() < 2) return false;
  const auto known = [&](std::size_t i) {
    Mixer x = m.mixers[i];
    x.window = m.mixers[1].window;  // windows have options of their own
    return x == m.mixers[1] && x.index_topk == 0 && !x.k_equals_v &&
           (x.kind == MixerKind::gqa || x.kind == MixerKind::mla);
  };
  for (std::size_t i = 1; i < m.mixers.size(); ++i)
    if (!known(i)) return false;
  return std::all_of(m.layers.begin(), m.layers.end(), [](const LayerKind& layer) {
    return layer.mixer > 0 && layer.ffn != FfnKind::none;
  });
}

Result<MegatronConfig> config_of_run(const Run& run, const ModelSpec& model,
                                     const Software& software, Flavour flavour) {
  MegatronConfig c = default_config(flavour);
  if (has_gpt_options(model)) {
    describe_model(model, run.seq_length, c);
  } else if (model.moe.num_moe_experts > 0) {
    c.num_experts = model.moe.num_moe_experts;
  }
  describe_sizes(run, model, c);
  Diagnostics problems = describe_split(run, model, flavour, c);
  if (!problems.empty()) return problems;
  describe_precision(run, c);
  if (model.moe.num_moe_experts > 0) describe_experts_layout(run, c);
  describe_memory(run.layout, flavour, c);
  describe_optimizer(run.layout, c);
  describe_software(software, run.software, c);
  return c;
}

}  // namespace moecast
