/// Rules of offloading activations and optimizer states.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

#define READS_LAYER_OFFLOAD "cpu_offloading cpu_offloading_num_layers"

constexpr Words kOffloadModules{"core_attn"_w,       "attn_proj"_w,  "expert_fc1"_w,
                                "fused_group_mlp"_w, "moe_act"_w,    "attn_norm"_w,
                                "mlp_norm"_w,        "qkv_linear"_w, "gdp_qkv"_w};

bool fraction_broken(double f) { return !(f >= 0.0 && f <= 1.0); }
bool new_te(In in) { return !older(in.at.versions.transformer_engine, 2010000); }

std::vector<Rule> offload_layer_rows() {
  return {
      error("OFFLOAD-LAYERS-PP", READS_LAYER_OFFLOAD " pipeline_model_parallel_size",
            "layer offload needs PP 1", "use offload.activation_modules with PP",
            kTransformerConfig, WHEN(layer_offload(in) && c.pipeline_model_parallel_size > 1))
          .logs("Currently there is no support for Pipeline parallelism with CPU offloading")
          .says([](In in) {
            return fmt::format("layer-level activation offload with PP {}",
                               in.c.pipeline_model_parallel_size);
          }),
      error("OFFLOAD-LAYERS-COUNT", READS_LAYER_OFFLOAD " num_layers",
            "0 <= offloaded layers < decoder layers", "offload fewer layers", kTransformerConfig,
            WHEN((layer_offload(in) && c.cpu_offloading_num_layers >= c.num_layers) ||
                 (at.run_file && c.cpu_offloading_num_layers < 0)))
          .says([](In in) {
            return fmt::format("{} of {} layers offloaded", in.c.cpu_offloading_num_layers,
                               in.c.num_layers);
          }),
      error("OFFLOAD-LAYERS-RECOMPUTE", READS_LAYER_OFFLOAD " " READS_RECOMPUTE,
            "layer offload excludes recompute", "drop one of the two", kTransformerConfig,
            WHEN(layer_offload(in) && c.recompute_granularity))
          .logs("CPU offloading does not work when activation recomputation is enabled")
          .says([](In) { return std::string("layer-level activation offload with recompute"); }),
      error("OFFLOAD-BOTH", READS_LAYER_OFFLOAD " " READS_OFFLOAD,
            "layer offload excludes fine-grained offload", "choose one", kTransformerConfig,
            WHEN(layer_offload(in) && fine_grained(in)))
          .logs("fine_grained_activation_offloading cannot be enabled with cpu_offloading")
          .says([](In) { return std::string("both kinds of activation offload are on"); }),
  };
}

std::vector<Rule> offload_module_rows() {
  return {
      error("OFFLOAD-MODULES", READS_OFFLOAD,
            "fine-grained offload names modules among core_attn, attn_proj, expert_fc1, "
            "fused_group_mlp, moe_act, attn_norm, mlp_norm, qkv_linear and gdp_qkv",
            "state offload_modules", kTransformerConfig,
            WHEN(fine_grained(in) &&
                 (c.offload_modules.empty() || c.offload_modules.outside(kOffloadModules)))),
      error("OFFLOAD-ATTN-PROJ", READS_OFFLOAD, "offload of attn_proj needs core_attn",
            "add core_attn", kTransformerConfig,
            WHEN(offloads(in, "attn_proj"_w) && !offloads(in, "core_attn"_w)))
          .says([](In) { return std::string("attn_proj is offloaded without core_attn"); }),
      error("OFFLOAD-MOE-RECOMPUTE", READS_OFFLOAD " " READS_RECOMPUTE,
            "recompute module moe excludes offload of expert_fc1, moe_act and fused_group_mlp",
            "offload attention modules, or do not recompute moe", kTransformerConfig,
            WHEN(recomputes(in, "moe"_w) && offloads_expert_modules(in)))
          .says([](In) { return std::string("experts are both recomputed and offloaded"); }),
      error("OFFLOAD-FUSED-MLP", READS_OFFLOAD " use_transformer_engine_op_fuser",
            "offload of fused_group_mlp needs fused_grouped_mlp and excludes expert_fc1 and "
            "moe_act",
            "turn software.features.fused_grouped_mlp on, or offload expert_fc1 and moe_act",
            kTransformerConfig,
            WHEN(offloads(in, "fused_group_mlp"_w) &&
                 (!c.use_transformer_engine_op_fuser || offloads(in, "expert_fc1"_w) ||
                  offloads(in, "moe_act"_w))))
          .says([](In) {
            return std::string("fused_group_mlp is offloaded without the fused MLP alone");
          }),
      error("OFFLOAD-RECOMPUTED", READS_OFFLOAD " " READS_RECOMPUTE,
            "recompute of mhc excludes fine-grained offload, and gdp_in_proj excludes offload of "
            "gdp_qkv",
            "drop one of the two", kTransformerConfig,
            WHEN(fine_grained(in) && (recomputes(in, "mhc"_w) || (recomputes(in, "gdp_in_proj"_w) &&
                                                                  offloads(in, "gdp_qkv"_w))))),
      error("OFFLOAD-FRACTION",
            READS_OFFLOAD " activation_offload_fraction optimizer_offload_fraction",
            "offload fractions lie in 0..1", "choose a fraction between 0 and 1",
            kTransformerConfig,
            WHEN((fine_grained(in) || at.run_file) &&
                 (fraction_broken(c.activation_offload_fraction) ||
                  (at.run_file && fraction_broken(c.optimizer_offload_fraction)))))
          .says([](In in) {
            return fmt::format("activation fraction {}, optimizer fraction {}",
                               in.c.activation_offload_fraction, in.c.optimizer_offload_fraction);
          }),
      error("OFFLOAD-SIZES",
            READS_OFFLOAD " min_offloaded_tensor_size delta_offload_bytes_across_pp_ranks",
            "min_offloaded_tensor_size and delta_offload_bytes_across_pp_ranks are not negative",
            "set them to 0 or more", kTransformerConfig,
            WHEN(fine_grained(in) &&
                 (c.min_offloaded_tensor_size < 0 || c.delta_offload_bytes_across_pp_ranks < 0))),
      error("OFFLOAD-IMPL", READS_OFFLOAD " transformer_impl",
            "fine-grained offload needs transformer_impl transformer_engine",
            "set transformer_impl to transformer_engine", kArguments,
            WHEN(fine_grained(in) && c.transformer_impl != "transformer_engine"_w)),
      error("OFFLOAD-ENV-LAUNCH", READS_OFFLOAD " te_version env.NVTE_CPU_OFFLOAD_V1",
            "fine-grained offload with Transformer Engine >= 2.10 needs NVTE_CPU_OFFLOAD_V1=1",
            "export NVTE_CPU_OFFLOAD_V1=1", kArguments,
            WHEN(fine_grained(in) && new_te(in) && !at.cpu_offload_v1 && !at.run_file))
          .logs("NVTE_CPU_OFFLOAD_V1"),
      warning("OFFLOAD-ENV", READS_OFFLOAD " te_version env.NVTE_CPU_OFFLOAD_V1",
              "fine-grained offload with Transformer Engine >= 2.10 needs NVTE_CPU_OFFLOAD_V1=1",
              "export NVTE_CPU_OFFLOAD_V1=1", kBridgeConfig,
              WHEN(fine_grained(in) && new_te(in) && !at.cpu_offload_v1 && at.run_file))
          .by(kBridge)
          .says([](In) { return std::string("activation offload without NVTE_CPU_OFFLOAD_V1=1"); }),
  };
}

std::vector<Rule> optimizer_offload_rows() {
  return {
      error("OPTIMIZER-OFFLOAD-LAUNCH", "optimizer_cpu_offload use_precision_aware_optimizer",
            "optimizer offload needs the precision-aware optimizer",
            "pass --use-precision-aware-optimizer", kArguments,
            WHEN(c.optimizer_cpu_offload && !c.use_precision_aware_optimizer))
          .by(kLM)
          .logs("The optimizer cpu offload must be used in conjunction with "
                "`--use-precision-aware-optimizer`"),
      error("OPTIMIZER-OFFLOAD-FP8", "optimizer_cpu_offload fp8_param_gather " READS_FP8,
            "optimizer offload with fp8_param_gather needs the delayed recipe",
            "drop --fp8-param-gather", kArguments,
            WHEN(c.optimizer_cpu_offload && c.fp8_param_gather && c.fp8_recipe != "delayed"_w))
          .by(kLM),
      warning("OPTIMIZER-OFFLOAD-DISTRIBUTED", "optimizer_cpu_offload use_distributed_optimizer",
              "optimizer offload goes with the distributed optimizer",
              "turn optimizer.distributed on", kOptimizerConfig,
              WHEN(c.optimizer_cpu_offload && !c.use_distributed_optimizer))
          .says([](In) {
            return std::string("optimizer offload without the distributed optimizer");
          }),
      warning("OPTIMIZER-OFFLOAD-PRECISION", "optimizer_cpu_offload use_precision_aware_optimizer",
              "Megatron-LM's own launcher wants the precision-aware optimizer with optimizer "
              "offload",
              "turn optimizer.precision_aware on to run under Megatron-LM too", kArguments,
              WHEN(at.run_file && c.optimizer_cpu_offload && !c.use_precision_aware_optimizer))
          .by(kBridge)
          .says([](In) {
            return std::string("optimizer offload without the precision-aware optimizer");
          }),
  };
}

}  // namespace

std::vector<Rule> offload_rules() {
  return join({offload_layer_rows, offload_module_rows, optimizer_offload_rows});
}

}  // namespace moecast::rules
