/// Rules of recomputation.
#include <fmt/format.h>

#include "layout/enum_names.hpp"
#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kGranularity = "recompute.granularity";
constexpr std::string_view kModules = "recompute.modules";
constexpr std::string_view kMtp = "megatron/core/transformer/multi_token_prediction.py";

/// A selected module that this model does not have (only these are told apart by the model).
bool module_without_effect(In in) {
  if (!selective(in) || in.layout.recompute_modules.empty()) return false;
  const bool on_experts =
      recomputes(in, RecomputeModule::moe_act) || recomputes(in, RecomputeModule::moe);
  return (on_experts && !moe(in)) ||
         (recomputes(in, RecomputeModule::shared_experts) && !shared_experts(in)) ||
         (recomputes(in, RecomputeModule::mlp) && !has_ffn(in, FfnKind::dense));
}

std::vector<Rule> recompute_granularity_rows() {
  return {
      error(
          "RECOMPUTE-FULL-METHOD", {kGranularity, "recompute.method", "recompute.num_layers"},
          "full recompute needs method uniform or block and num_layers >= 1",
          "set recompute.method and recompute.num_layers", kTransformerConfig,
          [](In in) {
            return full_recompute(in) && (in.layout.recompute_method == RecomputeMethod::none ||
                                          in.layout.recompute_num_layers < 1);
          },
          [](In in) {
            return fmt::format("full recompute with method {} and num_layers {}",
                               enum_text(in.layout.recompute_method),
                               in.layout.recompute_num_layers);
          }),
      error(
          "RECOMPUTE-SELECTIVE-LAYERS", {kGranularity, "recompute.num_layers"},
          "selective recompute takes no num_layers", "clear recompute.num_layers",
          kTransformerConfig,
          [](In in) { return selective(in) && in.layout.recompute_num_layers > 0; },
          [](In in) {
            return fmt::format("selective recompute with num_layers {}",
                               in.layout.recompute_num_layers);
          }),
  };
}

std::vector<Rule> recompute_module_rows() {
  return {
      error(
          "RECOMPUTE-MLA", {kModules, "model"}, "recompute module mla_up_proj needs MLA",
          "leave mla_up_proj out", kTransformerConfig,
          [](In in) {
            return recomputes(in, RecomputeModule::mla_up_proj) && !has_mixer(in, MixerKind::mla) &&
                   !has_mixer(in, MixerKind::csa);
          },
          [](In in) { return fmt::format("{} has no latent attention", in.model.name); }),
      error(
          "RECOMPUTE-GDN", {kModules, "model"},
          "recompute module gdn_norm_out needs gated delta net", "leave gdn_norm_out out",
          kTransformerConfig,
          [](In in) {
            return recomputes(in, RecomputeModule::gdn_norm_out) && !has_mixer(in, MixerKind::gdn);
          },
          [](In in) { return fmt::format("{} has no gated delta net", in.model.name); }),
      error(
          "RECOMPUTE-MHC", {kModules, "model"}, "recompute module mhc needs hyper connections",
          "leave mhc out", kTransformerConfig,
          [](In in) {
            return recomputes(in, RecomputeModule::mhc) && in.model.hyper_connections == 0;
          },
          [](In in) { return fmt::format("{} has no hyper connections", in.model.name); }),
      error(
          "RECOMPUTE-MHC-MLP", {kModules}, "recompute module mhc excludes mlp", "keep one",
          kTransformerConfig,
          [](In in) {
            return recomputes(in, RecomputeModule::mhc) && recomputes(in, RecomputeModule::mlp);
          },
          [](In) { return std::string("recompute modules mhc and mlp together"); }),
      error(
          "RECOMPUTE-SHARED-OVERLAP", {kModules, "moe.moe_shared_expert_overlap"},
          "recompute module shared_experts excludes shared-expert overlap", "keep one",
          kTransformerConfig,
          [](In in) {
            return recomputes(in, RecomputeModule::shared_experts) && shared_experts(in) &&
                   in.layout.moe_shared_expert_overlap;
          },
          [](In) { return std::string("shared experts are both overlapped and recomputed"); }),
      error(
          "RECOMPUTE-FP8-DELAYED", {kModules, "precision"},
          "recompute of moe_act or layernorm excludes FP8 delayed scaling",
          "use another FP8 recipe", kTransformerConfig,
          [](In in) {
            return in.layout.precision == Precision::fp8_delayed &&
                   (recomputes(in, RecomputeModule::moe_act) ||
                    recomputes(in, RecomputeModule::layernorm));
          },
          [](In) { return std::string("moe_act or layernorm recompute with fp8_delayed"); }),
  };
}

std::vector<Rule> recompute_effect_rows() {
  return {
      runtime_error(
          "RECOMPUTE-MTP", {kGranularity, "recompute.num_layers", "model"},
          "full uniform recompute of a model with MTP needs num_layers 1",
          "set recompute.num_layers to 1", kMtp,
          [](In in) {
            return full_recompute(in) && in.model.mtp_num_layers > 0 &&
                   in.layout.recompute_method == RecomputeMethod::uniform &&
                   in.layout.recompute_num_layers > 1;
          },
          [](In in) {
            return fmt::format("uniform recompute of {} layers with MTP",
                               in.layout.recompute_num_layers);
          }),
      warning(
          "RECOMPUTE-MTP-BLOCK", {kGranularity, "recompute.method", "model"},
          "full block recompute skips the MTP layers", "use method uniform with num_layers 1", kMtp,
          [](In in) {
            return full_recompute(in) && in.model.mtp_num_layers > 0 &&
                   in.layout.recompute_method == RecomputeMethod::block;
          },
          [](In) { return std::string("the MTP layers are not recomputed under method block"); }),
      warning(
          "RECOMPUTE-CORE-ATTN", {kModules},
          "fused and flash attention already recompute core_attn", "leave core_attn out",
          kTransformerConfig, [](In in) { return recomputes(in, RecomputeModule::core_attn); },
          [](In) {
            return std::string("recompute of core_attn costs time and saves almost nothing");
          }),
      warning(
          "RECOMPUTE-IGNORED", {kGranularity, kModules},
          "recompute modules need granularity selective", "set recompute.granularity to selective",
          kTransformerConfig,
          [](In in) { return !selective(in) && !in.layout.recompute_modules.empty(); },
          [](In in) {
            return fmt::format("recompute.modules has no effect with granularity {}",
                               enum_text(in.layout.recompute_granularity));
          }),
      warning("RECOMPUTE-NO-EFFECT", {kModules, "model"},
              "every recompute module exists in the model", "leave the module out",
              "megatron/core/transformer/transformer_layer.py", module_without_effect,
              [](In in) {
                return fmt::format("a recompute module names layers that {} does not have",
                                   in.model.name);
              }),
  };
}

}  // namespace

std::vector<Rule> recompute_rules() {
  return join({recompute_granularity_rows, recompute_module_rows, recompute_effect_rows});
}

}  // namespace moecast::rules
