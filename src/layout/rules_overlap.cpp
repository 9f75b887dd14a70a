/// Rules of overlap_moe_expert_parallel_comm. Version gates are in rules_versions.cpp.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

#define READS_OVERLAP "overlap_moe_expert_parallel_comm"
constexpr std::string_view kOverlapPage =
    "perf-expert-parallel-overlap: compatibility and constraints";
constexpr std::string_view kDiagnosisPage = "perf-expert-parallel-overlap: failure diagnosis";

/// Megatron-LM reads VPP 1 as none; Bridge looks before the layout string becomes a VPP, and lets a
/// stated 1 pass. Of a run file the value 1 is what "not stated" becomes.
bool vpp_missing(In in) {
  if (!overlap(in) || in.c.pipeline_model_parallel_size == 1) return false;
  if (in.at.flavour == Flavour::megatron_lm)
    return !in.c.num_virtual_stages_per_pipeline_rank.has_value();
  return in.at.run_file ? in.asked.num_virtual_stages_per_pipeline_rank.value_or(1) < 2
                        : !in.asked.num_virtual_stages_per_pipeline_rank &&
                              !in.asked.num_layers_per_virtual_pipeline_stage;
}

std::vector<Rule> overlap_needs() {
  return {
      error("EP-OVERLAP-EP", READS_OVERLAP " expert_model_parallel_size", "EP overlap needs EP > 1",
            "turn the overlap off or raise EP", kCommOverlap,
            WHEN(overlap(in) && c.expert_model_parallel_size == 1))
          .logs("expert_model_parallel_size must be greater than 1")
          .section(kDiagnosisPage)
          .says([](In) { return std::string("EP overlap with EP 1"); }),
      error("EP-OVERLAP-EXPERTS", READS_OVERLAP " num_experts",
            "EP overlap needs more than one expert", "turn the overlap off", kCommOverlap,
            WHEN(overlap(in) && c.num_experts.value_or(0) < 2))
          .logs("num_moe_experts must be greater than 1")
          .section(kOverlapPage)
          .says([](In in) {
            return fmt::format("EP overlap with {} experts", in.c.num_experts.value_or(0));
          }),
      error("EP-OVERLAP-DISPATCHER", READS_OVERLAP " moe_token_dispatcher_type",
            "EP overlap needs dispatcher alltoall, deepep or hybridep", "choose one of them",
            kCommOverlap,
            WHEN(overlap(in) && c.moe_token_dispatcher_type != "alltoall"_w && !flex(in)))
          .logs("assert moe_token_dispatcher_type: overlap_moe_expert_parallel_comm is supported "
                "with "
                "alltoall/flex token dispatcher")
          .section(kDiagnosisPage)
          .says([](In) { return std::string("EP overlap with the allgather dispatcher"); }),
      error("EP-OVERLAP-PRECISION", READS_OVERLAP " " READS_NUMBERS,
            "EP overlap needs a bf16 or fp16 model", "set bf16", kCommOverlap,
            WHEN(overlap(in) && !c.bf16 && !c.fp16))
          .logs("Currently, overlap_moe_expert_parallel_comm is only supported with bf16 or fp16 "
                "precision")
          .section(kDiagnosisPage),
      error("EP-OVERLAP-VPP", READS_OVERLAP " " READS_VPP,
            "EP overlap with PP > 1 needs a stated virtual_pipeline_model_parallel_size > "
            "1 (Bridge "
            "looks before it reads a layout string)",
            "state layout.virtual_pipeline_model_parallel_size", kCommOverlap, vpp_missing)
          .logs("If enabling EP A2A overlap, virtual_pipeline_model_parallel_size must be "
                "specified when pipeline_model_parallel_size > 1")
          .section(kDiagnosisPage)
          .says([](In in) {
            return fmt::format("EP overlap with PP {} and no virtual pipeline stated",
                               in.c.pipeline_model_parallel_size);
          }),
  };
}

std::vector<Rule> overlap_exclusions() {
  return {
      error("EP-OVERLAP-RECOMPUTE",
            READS_OVERLAP " recompute_granularity recompute_method recompute_num_layers",
            "EP overlap allows no full recompute, no method and no num_layers",
            "use selective recompute", kCommOverlap,
            WHEN(overlap(in) && !at.overlap_with_recompute &&
                 (full_recompute(in) || c.recompute_method || c.recompute_num_layers)))
          .since(
              "refused by releases up to mid-2026 and the checked commit; a build that allows it "
              "says so with software.features.overlap_with_recompute")
          .logs("disable full recomputation when enabling overlap_moe_expert_parallel_comm "
                "recompute_granularity recompute_method recompute_num_layers must be None")
          .section(kDiagnosisPage)
          .says([](In) {
            return std::string("EP overlap with full recompute, a method or num_layers");
          }),
      error("EP-OVERLAP-MOE-RECOMPUTE", READS_OVERLAP " " READS_RECOMPUTE,
            "EP overlap allows no \"moe\" in the recompute modules (whatever the granularity)",
            "recompute moe_act instead of moe", kCommOverlap,
            WHEN(overlap(in) && c.recompute_modules.has("moe"_w)))
          .logs("disable moe in recompute_modules when enabling overlap_moe_expert_parallel_comm")
          .says([](In) { return std::string("EP overlap with recompute module moe"); }),
      error("EP-OVERLAP-SHARED", READS_OVERLAP " moe_shared_expert_overlap",
            "EP overlap excludes moe_shared_expert_overlap (the flag alone, shared experts or not)",
            "turn moe_shared_expert_overlap off", kCommOverlap,
            WHEN(overlap(in) && c.moe_shared_expert_overlap))
          .logs("disable moe_shared_expert_overlap when enabling overlap_moe_expert_parallel_comm")
          .section("perf-expert-parallel-overlap: known limitations")
          .says([](In) { return std::string("EP overlap and shared-expert overlap are both on"); }),
      error("EP-OVERLAP-MTP", READS_OVERLAP " mtp_num_layers",
            "EP overlap allows at most one MTP layer",
            "set mtp_num_layers to 1 or 0, or turn the overlap off", kCommOverlap,
            WHEN(overlap(in) && c.mtp_num_layers.value_or(0) > 1))
          .logs("MTP layernum only supports 1 when enabling overlap_moe_expert_parallel_comm")
          .section(kOverlapPage)
          .says([](In in) {
            return fmt::format("EP overlap with {} MTP layers", in.c.mtp_num_layers.value_or(0));
          }),
      error("EP-OVERLAP-GRAPH-SCOPE", READS_OVERLAP " " READS_GRAPH,
            "EP overlap with transformer_engine graphs: scopes moe and mlp are forbidden",
            "capture attn, moe_router and moe_preprocess only", kTransformerConfig,
            WHEN(overlap(in) && te_graph(in) && (graphed(in, "moe"_w) || graphed(in, "mlp"_w))))
          .says([](In) { return std::string("EP overlap with moe or mlp in the graph scope"); }),
      error("EP-OVERLAP-NCCLEP-OFFLOAD", READS_OVERLAP " " READS_DISPATCHER " " READS_OFFLOAD,
            "EP overlap with the ncclep backend excludes offload of expert_fc1",
            "leave expert_fc1 out", kTransformerConfig,
            WHEN(overlap(in) && ncclep(in) && offloads(in, "expert_fc1"_w))),
      error("EP-OVERLAP-EARLY-RELEASE", "ep_overlap_early_attn_memory_release " READS_OVERLAP,
            "ep_overlap_early_attn_memory_release needs EP overlap", "turn it off",
            kTransformerConfig, WHEN(c.ep_overlap_early_attn_memory_release && !overlap(in)))
          .logs("ep_overlap_early_attn_memory_release"),
      error("EP-OVERLAP-FSDP", READS_OVERLAP " use_megatron_fsdp pipeline_model_parallel_size",
            "EP overlap with Megatron-FSDP needs PP 1", "drop FSDP or PP",
            "megatron/core/pipeline_parallel/combined_1f1b.py",
            WHEN(overlap(in) && megatron_fsdp(in) && c.pipeline_model_parallel_size > 1))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("EP overlap and FSDP with PP {}", in.c.pipeline_model_parallel_size);
          }),
      error("WGRAD-UNDER-DISPATCH",
            "overlap_dispatch_backward_with_experts_wgrad delay_wgrad_compute " READS_OVERLAP,
            "overlap_dispatch_backward_with_experts_wgrad excludes EP overlap and "
            "delay_wgrad_compute",
            "use one of them", kTransformerConfig,
            WHEN(c.overlap_dispatch_backward_with_experts_wgrad &&
                 (overlap(in) || c.delay_wgrad_compute))),
  };
}

}  // namespace

std::vector<Rule> overlap_rules() { return join({overlap_needs, overlap_exclusions}); }

std::vector<Rule> delayed_wgrad_rules() {
#define READS_WGRAD "delay_wgrad_compute"
  return {
      error("DELAY-WGRAD-OVERLAP", READS_WGRAD " " READS_OVERLAP,
            "delay_wgrad_compute needs overlap_moe_expert_parallel_comm",
            "turn EP overlap on as well", kCommOverlap, WHEN(c.delay_wgrad_compute && !overlap(in)))
          .logs("overlap_moe_expert_parallel_comm is required for delay_wgrad_compute")
          .section(kDiagnosisPage)
          .says([](In) { return std::string("delay_wgrad_compute without EP overlap"); }),
      error("DELAY-WGRAD-IMPL", READS_WGRAD " transformer_impl",
            "delay_wgrad_compute needs transformer_impl transformer_engine",
            "set transformer_impl to transformer_engine", kArguments,
            WHEN(c.delay_wgrad_compute && c.transformer_impl != "transformer_engine"_w))
          .by(kLM)
          .logs("Delaying wgrad compute is only supported with transformer_engine"),
      error("DELAY-WGRAD-GRAPH-FUSION",
            READS_WGRAD " gradient_accumulation_fusion overlap_grad_reduce " READS_GRAPH
                        " " READS_SHARED,
            "delay_wgrad_compute with the weight gradient in the graph scope needs "
            "gradient_accumulation_fusion",
            "turn gradient_accumulation_fusion on", kCommOverlap,
            WHEN(c.delay_wgrad_compute && wgrad_in_graph(in) && !c.gradient_accumulation_fusion &&
                 (at.flavour == Flavour::bridge || c.overlap_grad_reduce == true)))
          .logs("CUDA graph with delay_wgrad_compute requires gradient_accumulation_fusion")
          .section(kDiagnosisPage),
      error("DELAY-WGRAD-ATTN-BIAS",
            READS_WGRAD " " READS_GRAPH " add_bias_linear add_qkv_bias overlap_grad_reduce",
            "delay_wgrad_compute with attn in the graph scope: no linear or QKV bias",
            "leave attn out of the graph scope", kCommOverlap,
            WHEN(c.delay_wgrad_compute && graphed(in, "attn"_w) &&
                 (c.add_bias_linear || c.add_qkv_bias) &&
                 (at.flavour == Flavour::bridge || c.overlap_grad_reduce == true)))
          .logs("CUDA graph with delay_wgrad_compute doesn't support attention bias "
                "add_bias_linear add_qkv_bias")
          .section(kDiagnosisPage)
          .says([](In in) {
            return fmt::format("{} has attention biases, and attn is graphed with delayed wgrad",
                               in.at.model);
          }),
  };
}

}  // namespace moecast::rules
