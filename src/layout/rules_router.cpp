/// Rules of the router and of load balancing.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kMoeUtils = "megatron/core/transformer/moe/moe_utils.py";

bool groups_broken(In in) {
  const MegatronConfig& c = in.c;
  if (!moe(in) || !c.moe_router_group_topk) return false;
  const int groups = c.moe_router_num_groups.value_or(0);
  return groups < 1 || *c.num_experts % groups != 0 || *c.moe_router_group_topk > groups;
}
bool aux_losses_broken(In in) {
  const MegatronConfig& c = in.c;
  return c.moe_router_load_balancing_type.count > 1 &&
         c.moe_aux_loss_coeff.size() != c.moe_router_load_balancing_type.count;
}

}  // namespace

std::vector<Rule> router_rules() {
  return {
      error("ROUTER-GROUPS", "moe_router_num_groups moe_router_group_topk num_experts",
            "group-limited routing: groups divide the experts and group top-k <= groups (looked at "
            "only when moe_router_group_topk is set)",
            "correct moe_router_num_groups and moe_router_group_topk", kTransformerConfig,
            groups_broken)
          .says([](In in) {
            return fmt::format("{} experts in {} groups with group top-k {}", *in.c.num_experts,
                               in.c.moe_router_num_groups.value_or(0),
                               in.c.moe_router_group_topk.value_or(0));
          }),
      error("ROUTER-TOPK", "moe_router_topk num_experts", "top-k <= experts",
            "lower moe_router_topk", kMoeUtils, WHEN(moe(in) && c.moe_router_topk > *c.num_experts))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("top-k {} of {} experts", in.c.moe_router_topk, *in.c.num_experts);
          }),
      error("ROUTER-TOP1-SOFTMAX",
            "moe_router_topk moe_router_score_function moe_router_pre_softmax "
            "moe_router_load_balancing_type num_experts",
            "top-1 routing with softmax scores needs moe_router_pre_softmax",
            "set moe_router_pre_softmax", kTransformerConfig,
            WHEN(c.moe_router_topk == 1 && moe(in) && c.moe_router_score_function == "softmax"_w &&
                 !c.moe_router_pre_softmax && !c.moe_router_load_balancing_type.has("sinkhorn"_w)))
          .logs("Please use --moe-router-pre-softmax when topk is 1"),
      error("ROUTER-EXPERT-BIAS", "moe_router_enable_expert_bias moe_router_score_function",
            "the router's expert bias needs sigmoid or sqrtsoftplus scores",
            "set moe_router_score_function to sigmoid", kTransformerConfig,
            WHEN(c.moe_router_enable_expert_bias && c.moe_router_score_function != "sigmoid"_w &&
                 c.moe_router_score_function != "sqrtsoftplus"_w))
          .logs("Expert bias for aux-loss-free routing"),
      error("AUX-LOSS-COEFFS", "moe_router_load_balancing_type moe_aux_loss_coeff",
            "several load-balancing types take as many coefficients",
            "state moe_aux_loss_coeff as a list of the same length", kTransformerConfig,
            aux_losses_broken),
      error("ROUTER-PADDING-PRECISION",
            "moe_router_padding_for_quantization moe_router_padding_for_fp8 fp8_format fp4_format",
            "moe_router_padding_for_quantization needs FP8 or FP4", "turn the feature off",
            kTransformerConfig, WHEN(c.moe_router_padding_for_quantization && !quantized(in)))
          .says([](In) { return std::string("router padding for quantisation in bf16"); }),
      error("ROUTER-PADDING-ALLGATHER",
            "moe_router_padding_for_quantization moe_router_padding_for_fp8 "
            "moe_token_dispatcher_type",
            "moe_router_padding_for_quantization excludes the allgather dispatcher", "use alltoall",
            kTransformerConfig,
            WHEN(c.moe_router_padding_for_quantization &&
                 c.moe_token_dispatcher_type == "allgather"_w))
          .says([](In) { return std::string("router padding for quantisation with allgather"); }),
      warning("FLEX-PROBS-FP32", READS_DISPATCHER " moe_router_dtype",
              "the flex dispatcher takes probabilities in fp32 and casts others",
              "set moe_router_dtype to fp32", kTokenDispatcher,
              WHEN(moe(in) && flex(in) && !at.run_file && c.moe_router_dtype != "fp32"_w))
          .logs("set moe_router_dtype=fp32"),
  };
}

}  // namespace moecast::rules
