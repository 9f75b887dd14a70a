/// Rules of offloading activations and optimizer states.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

bool fraction_broken(double f) { return !(f >= 0.0 && f <= 1.0); }

std::vector<Rule> layer_offload_rows() {
  constexpr std::string_view kLayers = "offload.cpu_offloading_num_layers";
  return {
      error(
          "OFFLOAD-LAYERS-PP", {kLayers, "layout.pp"}, "layer offload needs PP 1",
          "use offload.activation_modules with PP", kTransformerConfig,
          [](In in) { return in.layout.cpu_offloading_num_layers > 0 && in.layout.pp > 1; },
          [](In in) {
            return fmt::format("layer-level activation offload with PP {}", in.layout.pp);
          }),
      error(
          "OFFLOAD-LAYERS-COUNT", {kLayers, "model"}, "0 <= offloaded layers < decoder layers",
          "offload fewer layers", kTransformerConfig,
          [](In in) {
            const int n = in.layout.cpu_offloading_num_layers;
            return n < 0 || (n > 0 && n >= num_layers(in));
          },
          [](In in) {
            return fmt::format("{} of {} layers offloaded", in.layout.cpu_offloading_num_layers,
                               num_layers(in));
          }),
      error(
          "OFFLOAD-LAYERS-RECOMPUTE", {kLayers, "recompute.granularity"},
          "layer offload excludes recompute", "drop one of the two", kTransformerConfig,
          [](In in) {
            return in.layout.cpu_offloading_num_layers > 0 &&
                   in.layout.recompute_granularity != RecomputeGranularity::none;
          },
          [](In) { return std::string("layer-level activation offload with recompute"); }),
      error(
          "OFFLOAD-BOTH", {kLayers, "offload.activation_modules"},
          "layer offload excludes fine-grained offload", "keep one", kTransformerConfig,
          [](In in) {
            return in.layout.cpu_offloading_num_layers > 0 && !in.layout.offload_modules.empty();
          },
          [](In) { return std::string("both kinds of activation offload are on"); }),
  };
}

std::vector<Rule> module_offload_rows() {
  constexpr std::string_view kOffload = "offload.activation_modules";
  return {
      error(
          "OFFLOAD-ATTN-PROJ", {kOffload}, "offload of attn_proj needs core_attn", "add core_attn",
          kTransformerConfig,
          [](In in) {
            return offloads(in, OffloadModule::attn_proj) &&
                   !offloads(in, OffloadModule::core_attn);
          },
          [](In) { return std::string("attn_proj is offloaded without core_attn"); }),
      error(
          "OFFLOAD-MOE-RECOMPUTE", {kOffload, "recompute.modules"},
          "recompute module moe excludes offload of expert_fc1, moe_act and fused_group_mlp",
          "offload attention modules, or do not recompute moe", kTransformerConfig,
          [](In in) { return recomputes(in, RecomputeModule::moe) && offloads_expert_modules(in); },
          [](In) { return std::string("experts are both recomputed and offloaded"); }),
      error(
          "OFFLOAD-FUSED-MLP", {kOffload, "software.features"},
          "offload of fused_group_mlp needs fused_grouped_mlp and excludes expert_fc1 and moe_act",
          "turn software.features.fused_grouped_mlp on, or offload expert_fc1 and moe_act",
          kTransformerConfig,
          [](In in) {
            return offloads(in, OffloadModule::fused_group_mlp) &&
                   (!feature(in, "fused_grouped_mlp") || offloads(in, OffloadModule::expert_fc1) ||
                    offloads(in, OffloadModule::moe_act));
          },
          [](In) {
            return std::string("fused_group_mlp is offloaded without the fused MLP alone");
          }),
      error(
          "OFFLOAD-FRACTION", {"offload.activation_fraction", "offload.optimizer_fraction"},
          "offload fractions lie in 0..1", "choose a fraction between 0 and 1", kTransformerConfig,
          [](In in) {
            return fraction_broken(in.layout.offload_fraction) ||
                   fraction_broken(in.layout.optimizer_offload_fraction);
          },
          [](In in) {
            return fmt::format("activation fraction {}, optimizer fraction {}",
                               in.layout.offload_fraction, in.layout.optimizer_offload_fraction);
          }),
      warning(
          "OFFLOAD-ENV", {kOffload, "software.env"},
          "fine-grained offload with Transformer Engine >= 2.10 needs NVTE_CPU_OFFLOAD_V1=1",
          "export NVTE_CPU_OFFLOAD_V1=1", kBridgeConfig,
          [](In in) {
            const long te = in.versions.transformer_engine;
            return !in.layout.offload_modules.empty() && (te == 0 || te >= 2010000) &&
                   env(in, "NVTE_CPU_OFFLOAD_V1") != "1";
          },
          [](In) { return std::string("activation offload without NVTE_CPU_OFFLOAD_V1=1"); },
          kBridge),
  };
}

std::vector<Rule> optimizer_offload_rows() {
  return {
      warning(
          "OPTIMIZER-OFFLOAD-DISTRIBUTED", {"offload.optimizer_fraction", "optimizer.distributed"},
          "optimizer offload goes with the distributed optimizer", "turn optimizer.distributed on",
          "megatron/core/optimizer/optimizer_config.py",
          [](In in) {
            return in.layout.optimizer_offload_fraction > 0.0 && !in.layout.distributed_optimizer;
          },
          [](In) { return std::string("optimizer offload without the distributed optimizer"); }),
      warning(
          "OPTIMIZER-OFFLOAD-PRECISION",
          {"offload.optimizer_fraction", "optimizer.precision_aware"},
          "Megatron-LM's own launcher wants the precision-aware optimizer with optimizer offload",
          "turn optimizer.precision_aware on to run under Megatron-LM too", kArguments,
          [](In in) {
            return in.layout.optimizer_offload_fraction > 0.0 &&
                   !in.layout.precision_aware_optimizer;
          },
          [](In) { return std::string("optimizer offload without the precision-aware optimizer"); },
          "megatron-lm"),
  };
}

}  // namespace

std::vector<Rule> offload_rules() {
  return join({layer_offload_rows, module_offload_rows, optimizer_offload_rows});
}

}  // namespace moecast::rules
