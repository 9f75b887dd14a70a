/// Rules of overlap_moe_expert_parallel_comm and delay_wgrad_compute. Version gates are in
/// rules_versions.cpp.
#include <algorithm>

#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kOverlap = "moe.overlap_moe_expert_parallel_comm";
constexpr std::string_view kDelay = "moe.delay_wgrad_compute";

bool overlap(In in) { return in.layout.overlap_moe_expert_parallel_comm; }

bool attention_bias(In in) {
  return in.model.add_bias_linear || std::any_of(in.model.mixers.begin(), in.model.mixers.end(),
                                                 [](const Mixer& m) { return m.add_qkv_bias; });
}

std::vector<Rule> ep_overlap_rows() {
  return {
      error(
          "EP-OVERLAP-EP", {kOverlap, "layout.ep"}, "EP overlap needs EP > 1",
          "turn the overlap off or raise EP", kCommOverlap,
          [](In in) { return overlap(in) && in.layout.ep == 1; },
          [](In) { return std::string("EP overlap with EP 1"); }),
      error(
          "EP-OVERLAP-EXPERTS", {kOverlap, "model"}, "EP overlap needs more than one expert",
          "turn the overlap off", kCommOverlap,
          [](In in) { return overlap(in) && in.model.moe.num_moe_experts < 2; },
          [](In in) {
            return fmt::format("EP overlap with {} experts", in.model.moe.num_moe_experts);
          }),
      error(
          "EP-OVERLAP-DISPATCHER", {kOverlap, "moe.dispatcher"},
          "EP overlap needs dispatcher alltoall, deepep or hybridep", "choose one of them",
          kCommOverlap,
          [](In in) { return overlap(in) && in.layout.dispatcher == Dispatcher::allgather; },
          [](In) { return std::string("EP overlap with the allgather dispatcher"); }),
      error(
          "EP-OVERLAP-VPP", {kOverlap, "layout.vpp", "layout.pp"},
          "EP overlap with PP > 1 needs a stated virtual_pipeline_model_parallel_size > 1 (Bridge "
          "looks "
          "before it reads a layout string)",
          "state layout.virtual_pipeline_model_parallel_size", kCommOverlap,
          [](In in) { return overlap(in) && in.layout.pp > 1 && in.layout.vpp < 2; },
          [](In in) {
            return fmt::format("EP overlap with PP {} and no virtual pipeline stated",
                               in.layout.pp);
          }),
  };
}

std::vector<Rule> ep_overlap_exclusion_rows() {
  return {
      error(
          "EP-OVERLAP-RECOMPUTE",
          {kOverlap, "recompute.granularity", "recompute.method", "recompute.num_layers"},
          "EP overlap allows no full recompute, no method and no num_layers",
          "use selective recompute", kCommOverlap,
          [](In in) {
            return overlap(in) &&
                   (full_recompute(in) || in.layout.recompute_method != RecomputeMethod::none ||
                    in.layout.recompute_num_layers > 0);
          },
          [](In) { return std::string("EP overlap with full recompute, a method or num_layers"); }),
      error(
          "EP-OVERLAP-MOE-RECOMPUTE", {kOverlap, "recompute.modules"},
          "EP overlap allows no \"moe\" in the recompute modules (whatever the granularity)",
          "recompute moe_act instead of moe", kCommOverlap,
          [](In in) {
            return overlap(in) && in.layout.recompute_modules.has(RecomputeModule::moe);
          },
          [](In) { return std::string("EP overlap with recompute module moe"); }),
      error(
          "EP-OVERLAP-SHARED", {kOverlap, "moe.moe_shared_expert_overlap"},
          "EP overlap excludes moe_shared_expert_overlap (the flag alone, shared experts or not)",
          "turn moe_shared_expert_overlap off", kCommOverlap,
          [](In in) { return overlap(in) && in.layout.moe_shared_expert_overlap; },
          [](In) { return std::string("EP overlap and shared-expert overlap are both on"); }),
      error(
          "EP-OVERLAP-MTP", {kOverlap, "model"}, "EP overlap allows at most one MTP layer",
          "set mtp_num_layers to 1 or 0, or turn the overlap off", kCommOverlap,
          [](In in) { return overlap(in) && in.model.mtp_num_layers > 1; },
          [](In in) {
            return fmt::format("EP overlap with {} MTP layers", in.model.mtp_num_layers);
          }),
      error(
          "EP-OVERLAP-GRAPH-SCOPE", {kOverlap, "cuda_graph.scope"},
          "EP overlap with transformer_engine graphs: scopes moe and mlp are forbidden",
          "capture attn, moe_router and moe_preprocess only", kTransformerConfig,
          [](In in) {
            return overlap(in) && te_graph(in) &&
                   (graphed(in, GraphModule::moe) || graphed(in, GraphModule::mlp));
          },
          [](In) { return std::string("EP overlap with moe or mlp in the graph scope"); }),
      runtime_error(
          "EP-OVERLAP-FSDP", {kOverlap, "fsdp", "layout.pp"},
          "EP overlap with Megatron-FSDP needs PP 1", "drop FSDP or PP",
          "megatron/core/pipeline_parallel/combined_1f1b.py",
          [](In in) {
            return overlap(in) && in.layout.fsdp != FsdpSharding::none && in.layout.pp > 1;
          },
          [](In in) { return fmt::format("EP overlap and FSDP with PP {}", in.layout.pp); }),
  };
}

std::vector<Rule> delay_wgrad_rows() {
  return {
      error(
          "DELAY-WGRAD-OVERLAP", {kDelay, kOverlap},
          "delay_wgrad_compute needs overlap_moe_expert_parallel_comm",
          "turn EP overlap on as well", kCommOverlap,
          [](In in) { return in.layout.delay_wgrad_compute && !overlap(in); },
          [](In) { return std::string("delay_wgrad_compute without EP overlap"); }),
      error(
          "DELAY-WGRAD-ATTN-BIAS", {kDelay, "cuda_graph.scope", "model"},
          "delay_wgrad_compute with attn in the graph scope: no linear or QKV bias",
          "leave attn out of the graph scope", kCommOverlap,
          [](In in) {
            return in.layout.delay_wgrad_compute && te_graph(in) &&
                   graphed(in, GraphModule::attn) && attention_bias(in);
          },
          [](In in) {
            return fmt::format("{} has attention biases, and attn is graphed with delayed wgrad",
                               in.model.name);
          }),
  };
}

}  // namespace

std::vector<Rule> overlap_rules() {
  return join({ep_overlap_rows, ep_overlap_exclusion_rows, delay_wgrad_rows});
}

}  // namespace moecast::rules
