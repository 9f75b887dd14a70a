/// Rules of recomputation.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kMtpSource = "megatron/core/transformer/multi_token_prediction.py";
constexpr Words kRecomputeModules{
    "core_attn"_w,      "moe_act"_w,      "layernorm"_w,   "mla_up_proj"_w, "mlp"_w, "moe"_w,
    "shared_experts"_w, "gdn_norm_out"_w, "gdp_in_proj"_w, "gdp_qkv"_w,     "mhc"_w};

/// A selected module that this model does not have (only these are told apart by the model).
bool module_without_effect(In in) {
  if (!selective(in) || in.c.recompute_modules.empty()) return false;
  const bool on_experts = recomputes(in, "moe_act"_w) || recomputes(in, "moe"_w);
  return (on_experts && !moe(in)) || (recomputes(in, "shared_experts"_w) && !shared_experts(in)) ||
         (recomputes(in, "mlp"_w) && !in.at.has_dense_layer);
}

std::vector<Rule> granularity_rows() {
  return {
      error("RECOMPUTE-GRANULARITY", "recompute_granularity",
            "recompute_granularity is full or selective", "choose one of them", kTransformerConfig,
            WHEN(c.recompute_granularity && !selective(in) && !full_recompute(in))),
      error(
          "RECOMPUTE-FULL-METHOD", "recompute_granularity recompute_method recompute_num_layers",
          "full recompute needs method uniform or block and num_layers >= 1",
          "set recompute.method and recompute.num_layers", kTransformerConfig,
          WHEN(full_recompute(in) &&
               ((c.recompute_method != "uniform"_w && c.recompute_method != "block"_w) ||
                (at.run_file ? c.recompute_num_layers.value_or(0) < 1 : !c.recompute_num_layers))))
          .logs(
              "must be uniform or block when granularity is full recompute_num_layers must be set")
          .says([](In in) {
            return fmt::format("full recompute with method {} and num_layers {}",
                               in.c.recompute_method ? text_of(in.c.recompute_method) : "none",
                               in.c.recompute_num_layers.value_or(0));
          }),
      error("RECOMPUTE-SELECTIVE-LAYERS", "recompute_num_layers " READS_RECOMPUTE,
            "selective recompute takes no num_layers", "clear recompute.num_layers",
            kTransformerConfig, WHEN(selective(in) && c.recompute_num_layers))
          .logs("When using recompute_granularity: selective recompute_num_layers must be None")
          .says([](In in) {
            return fmt::format("selective recompute with num_layers {}",
                               in.c.recompute_num_layers.value_or(0));
          }),
      error("RECOMPUTE-SELECTIVE-METHOD", "recompute_method " READS_RECOMPUTE,
            "selective recompute takes no method", "clear recompute.method", kArguments,
            WHEN(in.asked.recompute_granularity == "selective"_w && c.recompute_method))
          .by(kLM)
          .logs("recompute method is not yet supported for selective recomputing granularity"),
      error("RECOMPUTE-MOE-LAYER", "moe_layer_recompute recompute_granularity",
            "the deprecated moe_layer_recompute excludes full recompute",
            "drop moe_layer_recompute", kTransformerConfig,
            WHEN(c.moe_layer_recompute && full_recompute(in))),
  };
}

std::vector<Rule> recompute_module_rows() {
  return {
      error("RECOMPUTE-MODULES", READS_RECOMPUTE,
            "selective recompute knows core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, "
            "shared_experts, gdn_norm_out, gdp_in_proj, gdp_qkv and mhc",
            "choose among them", kTransformerConfig,
            WHEN(selective(in) && c.recompute_modules.outside(kRecomputeModules)))
          .logs("Invalid choices for recompute_modules"),
      error("RECOMPUTE-MOE-ACT", READS_RECOMPUTE " moe_grouped_gemm",
            "recompute of moe_act needs moe_grouped_gemm", "turn moe_grouped_gemm on",
            kTransformerConfig, WHEN(recomputes(in, "moe_act"_w) && !c.moe_grouped_gemm))
          .logs("moe_act in recompute_modules is only supported with moe_grouped_gemm"),
      error("RECOMPUTE-MLA", READS_RECOMPUTE " multi_latent_attention",
            "recompute module mla_up_proj needs MLA", "leave mla_up_proj out", kTransformerConfig,
            WHEN(recomputes(in, "mla_up_proj"_w) && !c.multi_latent_attention))
          .logs("mla_up_proj in recompute_modules is only supported with multi_latent_attention")
          .says([](In in) { return fmt::format("{} has no latent attention", in.at.model); }),
      error("RECOMPUTE-GDN", READS_RECOMPUTE " experimental_attention_variant linear_num_key_heads",
            "recompute module gdn_norm_out needs gated delta net", "leave gdn_norm_out out",
            kTransformerConfig,
            WHEN(recomputes(in, "gdn_norm_out"_w) && c.linear_num_key_heads.value_or(0) == 0 &&
                 c.experimental_attention_variant != "gated_delta_net"_w))
          .says([](In in) { return fmt::format("{} has no gated delta net", in.at.model); }),
      error("RECOMPUTE-MHC", READS_RECOMPUTE " enable_hyper_connections",
            "recompute module mhc needs hyper connections", "leave mhc out", kTransformerConfig,
            WHEN(recomputes(in, "mhc"_w) && !c.enable_hyper_connections))
          .says([](In in) { return fmt::format("{} has no hyper connections", in.at.model); }),
      error("RECOMPUTE-MHC-MLP", READS_RECOMPUTE, "recompute module mhc excludes mlp", "keep one",
            kTransformerConfig, WHEN(recomputes(in, "mhc"_w) && recomputes(in, "mlp"_w)))
          .says([](In) { return std::string("recompute modules mhc and mlp together"); }),
      error("RECOMPUTE-SHARED-OVERLAP", READS_RECOMPUTE " " READS_SHARED,
            "recompute module shared_experts excludes shared-expert overlap", "keep one",
            kTransformerConfig,
            WHEN(recomputes(in, "shared_experts"_w) && shared_experts(in) &&
                 c.moe_shared_expert_overlap))
          .logs("shared_experts recompute cannot work with --moe-shared-expert-overlap")
          .says(
              [](In) { return std::string("shared experts are both overlapped and recomputed"); }),
      error("RECOMPUTE-FP8-DELAYED", READS_RECOMPUTE " " READS_FP8,
            "recompute of moe_act or layernorm excludes FP8 delayed scaling",
            "use another FP8 recipe", kTransformerConfig,
            WHEN(recipe(in, "delayed"_w) &&
                 (recomputes(in, "moe_act"_w) || recomputes(in, "layernorm"_w))))
          .logs("Delayed scaling does not support moe_act and layernorm recompute for fp8")
          .says([](In) { return std::string("moe_act or layernorm recompute with fp8_delayed"); }),
  };
}

std::vector<Rule> recompute_effect_rows() {
  return {
      error("RECOMPUTE-MTP",
            "recompute_granularity recompute_method recompute_num_layers mtp_num_layers",
            "full uniform recompute of a model with MTP needs num_layers 1",
            "set recompute.num_layers to 1", kMtpSource,
            WHEN(full_recompute(in) && c.mtp_num_layers.value_or(0) > 0 &&
                 c.recompute_method == "uniform"_w && c.recompute_num_layers.value_or(0) > 1))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("uniform recompute of {} layers with MTP",
                               in.c.recompute_num_layers.value_or(0));
          }),
      warning("RECOMPUTE-MTP-BLOCK", "recompute_granularity recompute_method mtp_num_layers",
              "full block recompute skips the MTP layers", "use method uniform with num_layers 1",
              kMtpSource,
              WHEN(full_recompute(in) && c.mtp_num_layers.value_or(0) > 0 &&
                   c.recompute_method == "block"_w))
          .says([](In) {
            return std::string("the MTP layers are not recomputed under method block");
          }),
      warning("RECOMPUTE-CORE-ATTN", READS_RECOMPUTE,
              "fused and flash attention already recompute core_attn", "leave core_attn out",
              kTransformerConfig, WHEN(recomputes(in, "core_attn"_w)))
          .logs("If you are using transformer_engine as the transformer implementation, the "
                "core_attn is from transformer_engine and may be the fused version")
          .says([](In) {
            return std::string("recompute of core_attn costs time and saves almost nothing");
          }),
      warning("RECOMPUTE-IGNORED", READS_RECOMPUTE, "recompute modules need granularity selective",
              "set recompute.granularity to selective", kTransformerConfig,
              WHEN(!selective(in) && in.asked.recompute_modules.given &&
                   !in.asked.recompute_modules.empty()))
          .says([](In in) {
            return fmt::format(
                "recompute.modules has no effect with granularity {}",
                in.c.recompute_granularity ? text_of(in.c.recompute_granularity) : "none");
          }),
      warning("RECOMPUTE-NO-EFFECT",
              READS_RECOMPUTE " num_experts moe_shared_expert_intermediate_size moe_layer_freq",
              "every recompute module exists in the model", "leave the module out",
              kTransformerLayer, module_without_effect)
          .says([](In in) {
            return fmt::format("a recompute module names layers that {} does not have",
                               in.at.model);
          }),
  };
}

}  // namespace

std::vector<Rule> recompute_rules() {
  return join({granularity_rows, recompute_module_rows, recompute_effect_rows});
}

}  // namespace moecast::rules
