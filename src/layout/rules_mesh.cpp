/// Rules of the world, the two meshes, the batch and the pipeline. First in the table: they are
/// cheap and refuse most candidates.
#include <fmt/format.h>

#include "layout/pipeline_plan.hpp"
#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kMicrobatches = "megatron/core/num_microbatches_calculator.py";

bool size_out_of_range(In in) {
  const Layout& l = in.layout;
  for (int size : {l.tp, l.pp, l.vpp, l.cp, l.ep, l.etp, l.micro_batch_size, in.gpus}) {
    if (size < 1 || size > kLargestSize) return true;
  }
  return in.seq_length < 1 || in.global_batch_size < 1 ||
         l.microbatch_group_size_per_vp_stage < 0 || l.recompute_num_layers < 0 ||
         l.dispatcher_num_sms < 0;
}

std::string minimum_text(In in) {
  return fmt::format("the smallest world for this layout is {} GPUs", minimum_gpus(in.layout));
}

bool interleaved(In in) { return effective_vpp(in) > 1; }

std::vector<Rule> world_and_batch() {
  return {
      error(
          "SIZES",
          {"layout.tp", "layout.pp", "layout.vpp", "layout.cp", "layout.ep", "layout.etp",
           "train.micro_batch_size", "train.global_batch_size", "train.seq_length", "cluster.gpus"},
          "every parallel size, micro batch and GPU count lies in 1..1048576, sequence and global "
          "batch are "
          "at least 1",
          "give every size a value of at least 1", kParallelState, size_out_of_range,
          [](In in) {
            return fmt::format(
                "a size is out of range: gpus {} tp {} pp {} vpp {} cp {} ep {} etp {} mbs {} gbs "
                "{} "
                "seq {}",
                in.gpus, in.layout.tp, in.layout.pp, in.layout.vpp, in.layout.cp, in.layout.ep,
                in.layout.etp, in.layout.micro_batch_size, in.global_batch_size, in.seq_length);
          }),
      error(
          "WORLD-ATTENTION", {"cluster.gpus", "layout.tp", "layout.pp", "layout.cp"},
          "world size is a multiple of TP * PP * CP",
          "choose sizes whose product divides the GPU count", kParallelState,
          [](In in) { return in.gpus % attention_size(in) != 0; },
          [](In in) {
            return fmt::format("world size {} is not divisible by TP*PP*CP = {} ({}*{}*{}); {}",
                               in.gpus, attention_size(in), in.layout.tp, in.layout.pp,
                               in.layout.cp, minimum_text(in));
          }),
      error(
          "WORLD-EXPERT", {"cluster.gpus", "layout.etp", "layout.ep", "layout.pp"},
          "world size is a multiple of ETP * EP * PP",
          "choose sizes whose product divides the GPU count", kParallelState,
          [](In in) { return in.gpus % expert_size(in) != 0; },
          [](In in) {
            return fmt::format("world size {} is not divisible by ETP*EP*PP = {} ({}*{}*{}); {}",
                               in.gpus, expert_size(in), in.layout.etp, in.layout.ep, in.layout.pp,
                               minimum_text(in));
          }),
      error(
          "BATCH-DIVIDES",
          {"train.global_batch_size", "train.micro_batch_size", "layout.tp", "layout.pp",
           "layout.cp"},
          "global batch is a multiple of micro batch * DP, at least one microbatch",
          "change the global batch, the micro batch or DP", kMicrobatches,
          [](In in) { return data_parallel(in) > 0 && microbatches(in) == 0; },
          [](In in) {
            return fmt::format("global batch {} is not divisible by micro batch {} * DP {}",
                               in.global_batch_size, in.layout.micro_batch_size, data_parallel(in));
          }),
  };
}

std::vector<Rule> pipeline() {
  return {
      error(
          "VPP-NEEDS-PP", {"layout.vpp", "layout.pp"}, "VPP > 1 needs PP > 1",
          "set VPP to 1 or raise PP", kParallelState,
          [](In in) { return in.layout.pp == 1 && interleaved(in); },
          [](In in) { return fmt::format("VPP {} with PP 1", effective_vpp(in)); }),
      error(
          "EVEN-SPLIT", {"layout.pp", "layout.vpp", "layout.pipeline_model_parallel_layout"},
          "without a layout string: layers mod PP = 0 and (layers / PP) mod VPP = 0",
          "set layout.pipeline_model_parallel_layout to auto or to a layout string",
          "megatron/core/transformer/transformer_block.py",
          [](In in) {
            return in.layout.pipeline_split == PipelineSplit::megatron &&
                   !even_split_divides(in.model, in.layout.pp, in.layout.vpp);
          },
          [](In in) {
            return fmt::format("{} layers do not split evenly over PP {} x VPP {}", num_layers(in),
                               in.layout.pp, in.layout.vpp);
          }),
      error(
          "STAGES-HAVE-LAYERS", {"layout.pp", "layout.vpp"},
          "the balanced split gives every virtual stage a layer: PP * VPP <= layers",
          "lower PP or VPP, or state a layout string with empty stages", "moecast's own split",
          [](In in) {
            return in.layout.pipeline_split == PipelineSplit::automatic &&
                   static_cast<long>(in.layout.pp) * in.layout.vpp > num_layers(in);
          },
          [](In in) {
            return fmt::format("PP {} x VPP {} stages for {} layers", in.layout.pp, in.layout.vpp,
                               num_layers(in));
          }),
      error(
          "INTERLEAVE-GROUP",
          {"layout.vpp", "layout.microbatch_group_size_per_vp_stage", "train.global_batch_size"},
          "interleaved: PP <= microbatch_group_size_per_vp_stage <= microbatches",
          "raise the global batch to at least PP microbatches, or drop VPP", kSchedules,
          [](In in) {
            const long m = microbatches(in);
            const int g = in.layout.group_size();
            return m > 0 && interleaved(in) && (g < in.layout.pp || g > m);
          },
          [](In in) {
            return fmt::format("group size {} must lie between PP {} and the {} microbatches",
                               in.layout.group_size(), in.layout.pp, microbatches(in));
          }),
      error(
          "INTERLEAVE-REMAINDER",
          {"layout.vpp", "layout.microbatch_group_size_per_vp_stage", "train.global_batch_size"},
          "interleaved: microbatches mod group size is 0 or at least PP",
          "make the microbatch count a multiple of PP", kSchedules,
          [](In in) {
            const long m = microbatches(in);
            const long rest = m % in.layout.group_size();
            return m > 0 && interleaved(in) && rest != 0 && rest < in.layout.pp;
          },
          [](In in) {
            return fmt::format("{} microbatches leave {} after groups of {}, fewer than PP {}",
                               microbatches(in), microbatches(in) % in.layout.group_size(),
                               in.layout.group_size(), in.layout.pp);
          }),
  };
}

}  // namespace

std::vector<Rule> mesh_rules() { return join({world_and_batch, pipeline}); }

}  // namespace moecast::rules
