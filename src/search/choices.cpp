#include "search/choices.hpp"

#include <algorithm>
#include <bit>

namespace moecast {
namespace {

bool has_ffn(const ModelSpec& m, FfnKind kind) {
  return std::any_of(m.layers.begin(), m.layers.end(),
                     [&](const LayerKind& l) { return l.ffn == kind; });
}
bool has_mixer(const ModelSpec& m, std::initializer_list<MixerKind> kinds) {
  return std::any_of(m.layers.begin(), m.layers.end(), [&](const LayerKind& l) {
    return std::find(kinds.begin(), kinds.end(), m.mixers[l.mixer].kind) != kinds.end();
  });
}

}  // namespace

/// Every subset of the modules that save something in this model; with the whole MoE block
/// recomputed only the norms and up projections are left to add; full recomputation last.
std::vector<RecomputeChoice> recompute_choices(const ModelSpec& m) {
  std::vector<RecomputeModule> modules{RecomputeModule::layernorm};
  if (has_ffn(m, FfnKind::moe)) modules.push_back(RecomputeModule::moe_act);
  if (has_mixer(m, {MixerKind::mla, MixerKind::csa}))
    modules.push_back(RecomputeModule::mla_up_proj);
  if (has_ffn(m, FfnKind::dense)) modules.push_back(RecomputeModule::mlp);
  if (m.moe.moe_shared_expert_intermediate_size > 0)
    modules.push_back(RecomputeModule::shared_experts);
  if (has_mixer(m, {MixerKind::gdn})) modules.push_back(RecomputeModule::gdn_norm_out);
  std::vector<RecomputeChoice> choices;
  const auto subsets = [&](const std::vector<RecomputeModule>& from, bool with_moe) {
    for (unsigned bits = 0; bits < (1u << from.size()); ++bits) {
      RecomputeChoice c;
      for (std::size_t i = 0; i < from.size(); ++i) {
        if ((bits >> i) & 1) c.modules.add(from[i]);
      }
      if (with_moe) c.modules.add(RecomputeModule::moe);
      c.granularity =
          c.modules.empty() ? RecomputeGranularity::none : RecomputeGranularity::selective;
      choices.push_back(c);
    }
  };
  subsets(modules, false);
  if (has_ffn(m, FfnKind::moe)) {
    std::vector<RecomputeModule> beside{RecomputeModule::layernorm};
    if (has_mixer(m, {MixerKind::mla, MixerKind::csa}))
      beside.push_back(RecomputeModule::mla_up_proj);
    subsets(beside, true);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const RecomputeChoice& a, const RecomputeChoice& b) {
                     return std::popcount(a.modules.bits) < std::popcount(b.modules.bits);
                   });
  choices.push_back({RecomputeGranularity::full, {}, RecomputeMethod::uniform, 1});
  return choices;
}

std::vector<GraphChoice> graph_choices(const ModelSpec& m) {
  using enum GraphModule;
  std::vector<GraphChoice> choices{{CudaGraphImpl::none, {}}};
  ModuleSet<GraphModule> mixer;
  if (has_mixer(m,
                {MixerKind::gqa, MixerKind::mla, MixerKind::csa, MixerKind::gdn, MixerKind::kda}))
    mixer.add(attn);
  if (has_mixer(m, {MixerKind::mamba})) mixer.add(mamba);
  if (!has_ffn(m, FfnKind::moe)) {
    choices.push_back({CudaGraphImpl::transformer_engine, mixer});
  } else {
    choices.push_back({CudaGraphImpl::transformer_engine,
                       ModuleSet<GraphModule>{}.add(moe_router).add(moe_preprocess)});
    choices.push_back({CudaGraphImpl::transformer_engine,
                       ModuleSet<GraphModule>{mixer}.add(moe_router).add(moe_preprocess)});
  }
  choices.push_back({CudaGraphImpl::full_iteration, {}});
  return choices;
}

std::vector<OffloadChoice> offload_choices(const Layout& base, const ModelSpec& m) {
  using enum OffloadModule;
  const OffloadChoice asked{base.offload_modules, base.optimizer_offload_fraction};
  std::vector<OffloadChoice> choices{asked};
  if (!base.offload_modules.empty() || base.optimizer_offload_fraction > 0) return choices;
  ModuleSet<OffloadModule> experts, attention;
  attention.add(core_attn).add(attn_proj);
  experts.add(expert_fc1).add(moe_act);
  if (has_ffn(m, FfnKind::moe)) choices.push_back({experts, 0});
  choices.push_back({attention, 0});
  choices.push_back({{}, 1.0});
  return choices;
}

}  // namespace moecast
