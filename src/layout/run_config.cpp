#include "layout/run_config.hpp"

#include <algorithm>

#include "layout/layout_config.hpp"
#include "layout/megatron_import.hpp"
#include "layout/pipeline_plan.hpp"

namespace moecast {
namespace {

/// The rules read a configuration in which everything is stated; an export leaves out what the
/// launchers set by themselves, and what the model has no use for.
void leave_out(const ModelSpec& m, Flavour flavour, MegatronConfig& c) {
  const MegatronConfig usual = default_config(flavour);
  for (Words MegatronKnobs::*list :
       {&MegatronKnobs::recompute_modules, &MegatronKnobs::offload_modules,
        &MegatronKnobs::cuda_graph_modules})
    if ((c.*list).empty()) c.*list = {};
  if (!c.optimizer_cpu_offload) c.optimizer_offload_fraction = usual.optimizer_offload_fraction;
  if (!c.fp8_format) c.fp8_recipe = usual.fp8_recipe;
  if (!c.use_megatron_fsdp)
    c.data_parallel_sharding_strategy = usual.data_parallel_sharding_strategy;
  if (flavour == Flavour::megatron_lm) {  // follows from other options
    c.cpu_offloading = false;
    c.te_rng_tracker = usual.te_rng_tracker;
  }
  if (c.num_query_groups == c.num_attention_heads) c.num_query_groups.reset();
  c.apply_rope_fusion = usual.apply_rope_fusion;
  c.rope_type = usual.rope_type;  // the launchers' own for the kind of attention
  c.qk_layernorm = c.qk_layernorm || c.multi_latent_attention;
  if (!c.ffn_hidden_size) c.ffn_hidden_size = c.moe_ffn_hidden_size;
  const auto& freq = c.moe_layer_freq;
  if (std::find(freq.begin(), freq.end(), 0) == freq.end()) c.moe_layer_freq = usual.moe_layer_freq;
  if (c.moe_token_dispatcher_type != "flex"_w) {
    c.moe_flex_dispatcher_backend = usual.moe_flex_dispatcher_backend;
    c.moe_flex_dispatcher_num_sms.reset();
  }
  if (m.moe.num_moe_experts > 0) return;
  c.moe_token_dispatcher_type = usual.moe_token_dispatcher_type;
  c.moe_router_force_load_balancing = false;
  c.moe_router_dtype = {};
  c.moe_permute_fusion = c.moe_router_fusion = c.moe_paged_stash = false;
  c.moe_expert_rank_capacity_factor.reset();
  if (c.expert_tensor_parallel_size == 1) c.expert_tensor_parallel_size.reset();
}

/// A model whose layers have no options is named elsewhere.
void leave_model_out(Flavour flavour, MegatronConfig& c) {
  const MegatronConfig usual = default_config(flavour);
  for (const MegatronField& field : megatron_fields()) {
    if (field.run_key != "model" || field.name == "num_experts") continue;
    std::visit([&](auto member) { c.*member = usual.*member; }, field.member);
  }
}

/// One of chunks and layout string for Megatron-LM, which refuses both; Bridge wants both.
Diagnostics set_split(const Run& run, const ModelSpec& m, Flavour flavour, MegatronConfig& c) {
  const Layout& l = run.layout;
  const auto plan = plan_pipeline(m, l, run.pipeline_model_parallel_layout, run.seq_length);
  if (!plan) return plan.problems();
  if (l.pipeline_split != PipelineSplit::explicit_string)
    c.pipeline_model_parallel_layout = plan.value().layout_string;
  const bool chunks = flavour == Flavour::bridge || c.pipeline_model_parallel_layout.empty();
  c.num_virtual_stages_per_pipeline_rank.reset();
  if (chunks && plan.value().vpp > 1) c.num_virtual_stages_per_pipeline_rank = plan.value().vpp;
  return {};
}

/// Features that have an option. The precision's recipe decides about gathering unless the run
/// does.
void set_features(const Software& software, const Software& asked, Flavour flavour,
                  MegatronConfig& c) {
  for (const FeatureField& f : feature_fields()) {
    const auto& features = f.feature == "fp8_param_gather" ? asked.features : software.features;
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
  // Megatron-LM refuses Transformer Engine's (arguments.py); its own fusion is the nearest
  if (flavour == Flavour::megatron_lm) c.cross_entropy_fusion_impl = "native"_w;
}

void set_options_in_environment(MegatronConfig& c) {
  for (const std::string_view option : kOptionsInEnvironment) {
    set(c, option, nullptr);
    const auto found = c.env.find(std::string(option));
    if (found == c.env.end()) continue;
    const auto value = nlohmann::json::parse(found->second, nullptr, false);
    if (value.is_number() && value > 0) set(c, option, value);
    c.env.erase(found);
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
  MegatronConfig c = megatron_config_of(run, model, flavour);
  c.gpu = gpu_of_system(run.system);
  Diagnostics problems = set_split(run, model, flavour, c);
  if (!problems.empty()) return problems;
  set_features(software, run.software, flavour, c);
  set_options_in_environment(c);
  for (const Mixer& mixer : model.mixers)
    if (mixer.sinks) c.softmax_type = "learnable"_w;
  leave_out(model, flavour, c);
  if (!has_gpt_options(model)) leave_model_out(flavour, c);
  return c;
}

}  // namespace moecast
