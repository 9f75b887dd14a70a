/// Rules of pipeline stages: how layers split, and the schedules.
#include <fmt/format.h>

#include "layout/pipeline_plan.hpp"
#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

#define READS_SPLIT                                                     \
  "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers " \
  "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split"

constexpr std::string_view kOneStep = "megatron/core/pipeline_parallel/schedules.py (first step)";

bool interleaved(In in) { return in.vpp > 1 && in.c.pipeline_model_parallel_size > 1; }
bool counted_ends(In in) {
  return in.c.decoder_first_pipeline_num_layers || in.c.decoder_last_pipeline_num_layers;
}
bool accounted_ends(In in) {
  return in.c.account_for_embedding_in_pipeline_split || in.c.account_for_loss_in_pipeline_split;
}
/// Layers that the even split is made over: the embedding and the loss may count as one each.
long counted_layers(const MegatronConfig& c) {
  return static_cast<long>(c.num_layers) + c.account_for_embedding_in_pipeline_split +
         c.account_for_loss_in_pipeline_split;
}
bool even_split_broken(In in) {
  const MegatronConfig& c = in.c;
  if (in.at.layout.given || counted_ends(in) || in.at.auto_split) return false;
  const long layers = counted_layers(c);
  const long pp = c.pipeline_model_parallel_size;
  if (pp == 1 && in.vpp == 1) return false;
  return layers % pp != 0 || layers / pp % std::max(1, in.vpp) != 0;
}
bool counted_split_broken(In in) {
  const MegatronConfig& c = in.c;
  if (!counted_ends(in) || in.at.layout.given) return false;
  long layers = c.num_layers, stages = c.pipeline_model_parallel_size;
  for (const auto& count :
       {c.decoder_first_pipeline_num_layers, c.decoder_last_pipeline_num_layers}) {
    if (!count) continue;
    if (*count < 1 || (in.vpp > 1 && *count % in.vpp != 0)) return true;
    layers -= *count;
    --stages;
  }
  if (layers < 0 || stages < 0 || (layers == 0) != (stages == 0)) return true;
  return stages > 0 && (layers % stages != 0 || layers / stages % std::max(1, in.vpp) != 0);
}
std::vector<Rule> splits() {
  return {
      error("VPP-NEEDS-PP", READS_VPP,
            "a virtual pipeline needs PP > 1 (Bridge: also a stated VPP of 1)",
            "set VPP to 1 or raise PP", kParallelState,
            WHEN(c.pipeline_model_parallel_size == 1 &&
                 c.num_virtual_stages_per_pipeline_rank.has_value()))
          .at(Phase::init)
          .logs("pipeline-model-parallel size should be greater than 1 with interleaved schedule")
          .says([](In in) { return fmt::format("VPP {} with PP 1", in.vpp); }),
      error("VPP-STATED-TWICE",
            "num_virtual_stages_per_pipeline_rank num_layers_per_virtual_pipeline_stage "
            "pipeline_model_parallel_layout",
            "at most one of num_layers_per_virtual_pipeline_stage, "
            "num_virtual_stages_per_pipeline_rank and a layout string",
            "state the layout string alone, or one of the counts", kArguments,
            WHEN((in.asked.num_virtual_stages_per_pipeline_rank.has_value() +
                  c.num_layers_per_virtual_pipeline_stage.has_value() + at.layout.given) > 1))
          .by(kLM),
      error("VPP-LAYERS-DIVIDE",
            "num_layers_per_virtual_pipeline_stage num_layers pipeline_model_parallel_size "
            "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split",
            "layers per pipeline stage are a multiple of num_layers_per_virtual_pipeline_stage",
            "choose a divisor of layers / PP", kArguments,
            WHEN(c.num_layers_per_virtual_pipeline_stage &&
                 (*c.num_layers_per_virtual_pipeline_stage < 1 ||
                  counted_layers(c) % c.pipeline_model_parallel_size != 0 ||
                  counted_layers(c) / c.pipeline_model_parallel_size %
                          *c.num_layers_per_virtual_pipeline_stage !=
                      0))),
      error("VPP-LAYERS-COUNTED-ENDS",
            "num_layers_per_virtual_pipeline_stage decoder_first_pipeline_num_layers "
            "decoder_last_pipeline_num_layers",
            "num_layers_per_virtual_pipeline_stage excludes first and last stage counts",
            "state num_virtual_stages_per_pipeline_rank instead", kArguments,
            WHEN(c.num_layers_per_virtual_pipeline_stage && counted_ends(in)))
          .by(kLM),
      error("VPP-P2P-OVERLAP", READS_VPP " overlap_p2p_comm",
            "a virtual pipeline without overlapped exchanges needs PP > 2",
            "leave overlap_p2p_comm on, or raise PP", kArguments,
            WHEN(in.vpp > 1 && c.pipeline_model_parallel_size == 2 && c.overlap_p2p_comm == false))
          .by(kLM)
          .logs("when interleaved schedule is used and p2p communication overlap is disabled"),
      error("EVEN-SPLIT", READS_VPP " " READS_SPLIT,
            "without a layout string: layers mod PP = 0 and (layers / PP) mod VPP = 0",
            "set layout.pipeline_model_parallel_layout to auto or to a layout string",
            kTransformerBlock, even_split_broken)
          .at(Phase::build)
          .logs("num_layers should be divisible by pipeline_model_parallel_size")
          .says([](In in) {
            return fmt::format("{} layers do not split evenly over PP {} x VPP {}", in.c.num_layers,
                               in.c.pipeline_model_parallel_size, in.vpp);
          }),
  };
}

std::vector<Rule> counted_splits() {
  return {
      error(
          "COUNTED-SPLIT", READS_VPP " " READS_SPLIT,
          "first and last stage counts are positive multiples of VPP, and the other layers divide "
          "over the other stages and VPP",
          "change the counts, or state a layout string", kTransformerConfig, counted_split_broken),
      error(
          "COUNTED-AND-ACCOUNTED", READS_SPLIT,
          "first and last stage counts exclude account_for_embedding / account_for_loss",
          "use one way to make the ends lighter", kTransformerConfig,
          WHEN((c.decoder_first_pipeline_num_layers && c.account_for_embedding_in_pipeline_split) ||
               (c.decoder_last_pipeline_num_layers && c.account_for_loss_in_pipeline_split))),
      error("LAYOUT-AND-SPLIT", "pipeline_model_parallel_layout " READS_SPLIT,
            "a layout string excludes first and last stage counts and account_for_*",
            "put everything into the layout string", kTransformerConfig,
            WHEN(at.layout.given && (counted_ends(in) || accounted_ends(in)))),
      error("STAGES-HAVE-LAYERS",
            "pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank num_layers",
            "the balanced split gives every virtual stage a layer, but for one of the embedding "
            "and one of the loss: PP * VPP <= layers + 2",
            "lower PP or VPP, or state a layout string with empty stages", "moecast's own split",
            WHEN(at.auto_split && static_cast<long>(c.pipeline_model_parallel_size) * in.vpp >
                                      c.num_layers + kStagesWithoutLayers))
          .by(kOwn)
          .says([](In in) {
            return fmt::format("PP {} x VPP {} stages for {} layers",
                               in.c.pipeline_model_parallel_size, in.vpp, in.c.num_layers);
          }),
  };
}

std::vector<Rule> schedules() {
  return {
      error("INTERLEAVE-GROUP",
            READS_MICROBATCHES " " READS_VPP " microbatch_group_size_per_vp_stage",
            "interleaved: PP <= microbatch_group_size_per_vp_stage <= microbatches",
            "raise the global batch to at least PP microbatches, or drop VPP", kSchedules,
            WHEN(in.microbatches > 0 && interleaved(in) &&
                 (*c.microbatch_group_size_per_vp_stage < c.pipeline_model_parallel_size ||
                  *c.microbatch_group_size_per_vp_stage > in.microbatches)))
          .at(Phase::first_step)
          .logs("should range in")
          .says([](In in) {
            return fmt::format("group size {} must lie between PP {} and the {} microbatches",
                               *in.c.microbatch_group_size_per_vp_stage,
                               in.c.pipeline_model_parallel_size, in.microbatches);
          }),
      error("INTERLEAVE-REMAINDER",
            READS_MICROBATCHES " " READS_VPP " microbatch_group_size_per_vp_stage",
            "interleaved: microbatches mod group size is 0 or at least PP",
            "make the microbatch count a multiple of PP", kSchedules,
            WHEN(in.microbatches > 0 && interleaved(in) &&
                 in.microbatches % *c.microbatch_group_size_per_vp_stage != 0 &&
                 in.microbatches % *c.microbatch_group_size_per_vp_stage <
                     c.pipeline_model_parallel_size))
          .at(Phase::first_step)
          .logs("introduces dependency bubbles")
          .says([](In in) {
            const int g = *in.c.microbatch_group_size_per_vp_stage;
            return fmt::format("{} microbatches leave {} after groups of {}, fewer than PP {}",
                               in.microbatches, in.microbatches % g, g,
                               in.c.pipeline_model_parallel_size);
          }),
  };
}

std::vector<Rule> exchange_rows() {
  return {
      error("P2P-OVERLAP-AND-BATCH", "overlap_p2p_comm batch_p2p_comm " READS_VPP,
            "overlap_p2p_comm excludes batch_p2p_comm", "state VPP beside the layout string",
            kOneStep,
            WHEN(in.vpp > 1 && c.pipeline_model_parallel_size > 1 && c.overlap_p2p_comm == true &&
                 c.batch_p2p_comm == true))
          .at(Phase::first_step)
          .logs("Can not use both overlap_p2p_comm and batch_p2p_comm"),
      error("P2P-OVERLAP-PLAIN", "overlap_p2p_comm " READS_VPP,
            "the schedule without a virtual pipeline has no overlapped exchanges",
            "turn overlap_p2p_comm off or set VPP > 1", kOneStep,
            WHEN(in.vpp <= 1 && c.pipeline_model_parallel_size > 1 && c.overlap_p2p_comm == true))
          .at(Phase::runtime)
          .logs("Non-interleaved pipeline parallelism does not support overlapping p2p"),
      error("P2P-WARMUP-FLUSH",
            "overlap_p2p_comm_warmup_flush overlap_p2p_comm batch_p2p_comm " READS_VPP,
            "overlap_p2p_comm_warmup_flush needs overlap_p2p_comm without batch_p2p_comm",
            "turn the flush off, or state VPP > 1", kModelParallel,
            WHEN(c.overlap_p2p_comm_warmup_flush &&
                 (c.overlap_p2p_comm != true || c.batch_p2p_comm == true)))
          .logs("overlap_p2p_comm_warmup_flush"),
      error("EMBEDDING-WGRAD",
            "defer_embedding_wgrad_compute pipeline_model_parallel_size "
            "gradient_accumulation_fusion wgrad_deferral_limit",
            "defer_embedding_wgrad_compute needs PP > 1, gradient_accumulation_fusion and a "
            "wgrad_deferral_limit >= 0 (Bridge's default is -1)",
            "state wgrad_deferral_limit, or turn the deferral off", kModelParallel,
            WHEN(c.defer_embedding_wgrad_compute &&
                 (c.pipeline_model_parallel_size == 1 || !c.gradient_accumulation_fusion ||
                  c.wgrad_deferral_limit < 0)))
          .logs("wgrad_deferral_limit should be greater than or equal to 0"),
      warning("LAYOUT-VPP-UNSTATED",
              "pipeline_model_parallel_layout num_virtual_stages_per_pipeline_rank",
              "a layout string with several chunks per rank states VPP as well",
              "state layout.virtual_pipeline_model_parallel_size", kCommOverlap,
              WHEN(in.asked.num_virtual_stages_per_pipeline_rank.value_or(1) == 1 && in.vpp > 1 &&
                   at.layout.given))
          .by(kBridge)
          .says([](In in) {
            return fmt::format(
                "the string means VPP {}, but Bridge sees none stated and does not overlap "
                "pipeline communication",
                in.vpp);
          }),
      warning("FP32-RESIDUAL-P2P", "fp32_residual_connection pipeline_model_parallel_size",
              "an fp32 residual doubles the bytes of pipeline exchanges",
              "turn fp32_residual_connection off", kTransformerConfig,
              WHEN(c.fp32_residual_connection && c.pipeline_model_parallel_size > 1)),
      error("PARTIAL-CHECKPOINTS-OVERLAP",
            "num_microbatches_with_partial_activation_checkpoints overlap_moe_expert_parallel_comm",
            "EP overlap excludes num_microbatches_with_partial_activation_checkpoints",
            "leave it unset", "megatron/core/pipeline_parallel/combined_1f1b.py",
            WHEN(c.num_microbatches_with_partial_activation_checkpoints && overlap(in)))
          .at(Phase::runtime),
  };
}

}  // namespace

std::vector<Rule> pipeline_rules() {
  return join({splits, counted_splits, schedules, exchange_rows});
}

}  // namespace moecast::rules
