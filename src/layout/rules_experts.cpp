/// Rules of the experts' GEMMs, capacities and the paged stash.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

#define READS_CAPACITY "moe_expert_capacity_factor moe_pad_expert_input_to_capacity"
#define READS_RANK_CAPACITY "moe_expert_rank_capacity_factor " READS_DISPATCHER

constexpr Words kBalanced{"aux_loss"_w, "seq_aux_loss"_w, "global_aux_loss"_w, "none"_w};

bool grouped_weight_precision(In in) {
  if (recipe(in, "mxfp8"_w) || !quantized(in)) return true;
  return fp4(in) && in.c.fp4_recipe == "nvfp4"_w && in.c.fp4_param_gather;
}

std::vector<Rule> grouped_rows() {
  return {
      error("GROUPED-TENSOR-GEMM", "moe_use_grouped_tensor moe_grouped_gemm",
            "moe_use_grouped_tensor needs moe_grouped_gemm", "turn moe_grouped_gemm on",
            kTransformerConfig, WHEN(c.moe_use_grouped_tensor && !c.moe_grouped_gemm)),
      error("SINGLE-WEIGHT-TENSOR",
            "moe_single_grouped_weight moe_single_grouped_bias moe_use_grouped_tensor "
            "use_transformer_engine_op_fuser",
            "single grouped weights need moe_use_grouped_tensor", "turn moe_use_grouped_tensor on",
            kTransformerConfig,
            WHEN((c.moe_single_grouped_weight || c.moe_single_grouped_bias) &&
                 !c.moe_use_grouped_tensor)),
      error(
          "SINGLE-WEIGHT-PRECISION",
          "moe_single_grouped_weight fp8_format fp8_recipe fp4_format fp4_recipe fp4_param_gather",
          "single grouped weights go with bf16, mxfp8 or nvfp4 with fp4_param_gather",
          "turn moe_single_grouped_weight off", kTransformerConfig,
          WHEN(c.moe_single_grouped_weight && !grouped_weight_precision(in))),
      error("SINGLE-WEIGHT-FSDP", "moe_single_grouped_weight use_megatron_fsdp",
            "single grouped weights exclude Megatron-FSDP", "turn moe_single_grouped_weight off",
            kArguments, WHEN(c.moe_single_grouped_weight && megatron_fsdp(in))),
      error("GROUPED-TENSOR-NCCLEP",
            "moe_use_grouped_tensor use_transformer_engine_op_fuser " READS_DISPATCHER,
            "NCCL-EP with grouped tensors needs the op fuser",
            "turn use_transformer_engine_op_fuser on", kTransformerConfig,
            WHEN(ncclep(in) && c.moe_use_grouped_tensor && !c.use_transformer_engine_op_fuser)),
      error("PROBS-ON-INPUT", "moe_apply_probs_on_input moe_router_topk",
            "moe_apply_probs_on_input needs top-k 1", "turn it off", kExperts,
            WHEN(c.moe_apply_probs_on_input && c.moe_router_topk != 1 && moe(in)))
          .at(Phase::runtime),
      error("GROUPED-GEMM-GPU", "moe_grouped_gemm gpu",
            "grouped GEMM needs compute capability 8 or later", "turn moe_grouped_gemm off",
            kArguments,
            WHEN(c.moe_grouped_gemm && at.compute_capability > 0 && compute_major(in) < 8))
          .by(kLM),
  };
}

std::vector<Rule> capacity_rows() {
  return {
      error(
          "CAPACITY-BALANCING", READS_CAPACITY " moe_router_load_balancing_type",
          "a capacity factor goes with aux_loss, seq_aux_loss, global_aux_loss or none",
          "drop the capacity factor, or change the load balancing", kTransformerConfig,
          WHEN(c.moe_expert_capacity_factor && c.moe_router_load_balancing_type.outside(kBalanced)))
          .logs("moe_expert_capacity_factor only works with aux_loss, seq_aux_loss"),
      error("CAPACITY-PAD", READS_CAPACITY,
            "moe_pad_expert_input_to_capacity needs a capacity factor",
            "set moe_expert_capacity_factor", kTransformerConfig,
            WHEN(c.moe_pad_expert_input_to_capacity && !c.moe_expert_capacity_factor))
          .logs("moe_expert_capacity_factor must be set to use moe_pad_expert_input_to_capacity"),
      error("PAGED-STASH-DISPATCHER", READS_RANK_CAPACITY,
            "paged_stash (rank capacity) needs hybridep or ncclep", "use hybridep",
            kTransformerConfig,
            WHEN(c.moe_expert_rank_capacity_factor && !hybridep(in) && !ncclep(in)))
          .says([](In in) {
            return fmt::format("paged stash with dispatcher {}",
                               flex(in) ? text_of(in.c.moe_flex_dispatcher_backend)
                                        : text_of(in.c.moe_token_dispatcher_type));
          }),
      error("PAGED-STASH-FUSER",
            READS_RANK_CAPACITY " use_transformer_engine_op_fuser moe_use_grouped_tensor",
            "paged_stash with hybridep needs fused_grouped_mlp or moe_use_grouped_tensor",
            "turn software.features.fused_grouped_mlp on", kTransformerConfig,
            WHEN(c.moe_expert_rank_capacity_factor && hybridep(in) &&
                 !c.use_transformer_engine_op_fuser && !c.moe_use_grouped_tensor))
          .says([](In) { return std::string("paged stash without the fused grouped MLP"); }),
      error("RANK-CAPACITY-NCCLEP",
            READS_RANK_CAPACITY " use_transformer_engine_op_fuser moe_grouped_gemm",
            "rank capacity with ncclep needs the op fuser and grouped GEMM",
            "turn both on, or use hybridep", kTransformerConfig,
            WHEN(c.moe_expert_rank_capacity_factor && ncclep(in) &&
                 (!c.use_transformer_engine_op_fuser || !c.moe_grouped_gemm))),
      error("RANK-CAPACITY-NCCLEP-FP8",
            READS_RANK_CAPACITY " fp8_format fp4_format gpu env.NVTE_CUTEDSL_FUSED_GROUPED_MLP",
            "rank capacity with ncclep in FP8 or FP4 needs Blackwell and "
            "NVTE_CUTEDSL_FUSED_GROUPED_MLP=1",
            "set the variable, or train in bf16", kTransformerConfig,
            WHEN(c.moe_expert_rank_capacity_factor && ncclep(in) && quantized(in) &&
                 (!blackwell(in) || !at.fused_grouped_mlp_env))),
      error("PAGED-STASH-CAPACITY", "moe_paged_stash moe_expert_rank_capacity_factor",
            "moe_paged_stash needs moe_expert_rank_capacity_factor",
            "set moe_expert_rank_capacity_factor", kTransformerConfig,
            WHEN(c.moe_paged_stash && !c.moe_expert_rank_capacity_factor)),
      error("PAGED-STASH-OFFLOAD",
            "moe_paged_stash cpu_offloading cpu_offloading_num_layers " READS_OFFLOAD,
            "paged_stash excludes layer offload and offload of the experts' modules",
            "offload attention modules only", kTransformerConfig,
            WHEN(c.moe_paged_stash && (layer_offload(in) || offloads_expert_modules(in))))
          .says([](In) {
            return std::string("paged stash together with activation offload of experts");
          }),
  };
}

}  // namespace

std::vector<Rule> expert_rules() { return join({grouped_rows, capacity_rows}); }

}  // namespace moecast::rules
