/// Rules of the world, the two meshes and the batch. First in the table: they are cheap and refuse
/// most candidates.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"
#include "moecast/layout.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kMicrobatches = "megatron/core/num_microbatches_calculator.py";

bool size_out_of_range(In in) {
  const MegatronConfig& c = in.c;
  for (int size : {c.world_size, c.tensor_model_parallel_size, c.pipeline_model_parallel_size,
                   c.context_parallel_size, c.expert_model_parallel_size, etp(in),
                   c.micro_batch_size, c.num_virtual_stages_per_pipeline_rank.value_or(1),
                   c.tensor_parallel_num_weight_shards.value_or(1),
                   c.expert_tensor_parallel_num_weight_shards.value_or(1),
                   c.num_distributed_optimizer_instances.value_or(1)}) {
    if (size < 1 || size > kLargestSize) return true;
  }
  return c.seq_length < 1 || c.num_layers < 0 || c.hidden_size < 0 || c.num_attention_heads < 0 ||
         c.num_query_groups.value_or(1) < 0 || c.global_batch_size.value_or(1) < 0 ||
         c.microbatch_group_size_per_vp_stage.value_or(1) < 1 ||
         (in.at.run_file && (c.recompute_num_layers.value_or(0) < 0 ||
                             c.moe_flex_dispatcher_num_sms.value_or(0) < 0));
}

std::string minimum_text(In in) {
  Layout l;
  l.tp = in.c.tensor_model_parallel_size;
  l.pp = in.c.pipeline_model_parallel_size;
  l.cp = in.c.context_parallel_size;
  l.ep = in.c.expert_model_parallel_size;
  l.etp = etp(in);
  return fmt::format("the smallest world for this layout is {} GPUs", minimum_gpus(l));
}

long per_microbatch(In in) { return product({in.c.micro_batch_size, in.dp}); }

std::vector<Rule> world() {
  return {
      error(
          "SIZES",
          READS_MICROBATCHES
          " expert_model_parallel_size expert_tensor_parallel_size "
          "num_virtual_stages_per_pipeline_rank seq_length microbatch_group_size_per_vp_stage "
          "num_distributed_optimizer_instances num_layers hidden_size num_attention_heads",
          "every parallel size, micro batch and GPU count lies in 1..1048576, sequence and global "
          "batch are at least 1",
          "give every size a value of at least 1", kParallelState, size_out_of_range)
          .says([](In in) {
            return fmt::format(
                "a size is out of range: gpus {} tp {} pp {} vpp {} cp {} ep {} etp {} mbs {} gbs "
                "{} "
                "seq {}",
                in.c.world_size, in.c.tensor_model_parallel_size, in.c.pipeline_model_parallel_size,
                in.c.num_virtual_stages_per_pipeline_rank.value_or(1), in.c.context_parallel_size,
                in.c.expert_model_parallel_size, etp(in), in.c.micro_batch_size,
                in.c.global_batch_size.value_or(0), in.c.seq_length);
          }),
      error("WEIGHT-SHARDS", "tensor_parallel_num_weight_shards tensor_model_parallel_size",
            "weight shards of tensor parallelism: at least TP, and a multiple of it",
            "leave tensor_parallel_num_weight_shards out, or make it a multiple of TP",
            kModelParallel,
            WHEN(c.tensor_parallel_num_weight_shards &&
                 *c.tensor_parallel_num_weight_shards % c.tensor_model_parallel_size != 0))
          .logs("tensor_parallel_num_weight_shards must be"),
      error("WORLD-ATTENTION", READS_DP, "world size is a multiple of TP * PP * CP",
            "choose sizes whose product divides the GPU count", kParallelState,
            WHEN(c.world_size % in.attention != 0))
          .at(Phase::init)
          .logs("is not divisible by total_model_size")
          .section("moe-optimization-workflow: parallel folding")
          .says([](In in) {
            return fmt::format("world size {} is not divisible by TP*PP*CP = {} ({}*{}*{}); {}",
                               in.c.world_size, in.attention, in.c.tensor_model_parallel_size,
                               in.c.pipeline_model_parallel_size, in.c.context_parallel_size,
                               minimum_text(in));
          }),
      error("WORLD-EXPERT", "world_size pipeline_model_parallel_size " READS_EP_GROUP,
            "world size is a multiple of ETP * EP * PP",
            "choose sizes whose product divides the GPU count", kParallelState,
            WHEN(c.world_size % in.expert != 0))
          .at(Phase::init)
          .logs("is not divisible by expert_tensor_model_pipeline_parallel size")
          .section("moe-optimization-workflow: parallel folding")
          .says([](In in) {
            return fmt::format("world size {} is not divisible by ETP*EP*PP = {} ({}*{}*{}); {}",
                               in.c.world_size, in.expert, etp(in), in.c.expert_model_parallel_size,
                               in.c.pipeline_model_parallel_size, minimum_text(in));
          }),
      error("MESH-ORDER", READS_DP " use_tp_pp_dp_mapping " READS_EP_GROUP,
            "with use_tp_pp_dp_mapping and PP > 1, attention and experts have the same DP",
            "drop use_tp_pp_dp_mapping, or make ETP * EP = TP * CP", kParallelState,
            WHEN(c.use_tp_pp_dp_mapping && c.pipeline_model_parallel_size > 1 && in.dp != in.edp))
          .at(Phase::init)
          .logs("When not using pp-last rank ordering, the data parallel size"),
      error("OPTIMIZER-INSTANCES", READS_DP " num_distributed_optimizer_instances " READS_EP_GROUP,
            "DP * CP and the expert DP are multiples of num_distributed_optimizer_instances",
            "choose a number of instances that divides both", kParallelState,
            WHEN(c.num_distributed_optimizer_instances.value_or(1) > 1 &&
                 (in.dp * c.context_parallel_size % *c.num_distributed_optimizer_instances != 0 ||
                  in.edp % *c.num_distributed_optimizer_instances != 0)))
          .at(Phase::init),
  };
}

std::vector<Rule> batch() {
  return {
      error("BATCH-DIVIDES", READS_MICROBATCHES " decrease_batch_size_if_needed",
            "global batch is a multiple of micro batch * DP, at least one microbatch",
            "change the global batch, the micro batch or DP", kMicrobatches,
            WHEN(in.dp > 0 && in.microbatches == 0))
          .at(Phase::init)
          .logs("is not divisible by micro batch size")
          .says([](In in) {
            return fmt::format("global batch {} is not divisible by micro batch {} * DP {}",
                               in.c.global_batch_size.value_or(0), in.c.micro_batch_size, in.dp);
          }),
      error("BATCH-EVAL", READS_MICROBATCHES " eval_global_batch_size",
            "the evaluation batch (default: the global batch) is a multiple of micro batch * DP",
            "change eval_global_batch_size, the micro batch or DP", kArguments,
            WHEN(in.dp > 0 && c.eval_global_batch_size.value_or(0) % per_microbatch(in) != 0))
          .logs("eval_global_batch_size")
          .says([](In in) {
            return fmt::format("evaluation batch {} is not divisible by micro batch {} * DP {}",
                               in.c.eval_global_batch_size.value_or(0), in.c.micro_batch_size,
                               in.dp);
          }),
  };
}

}  // namespace

std::vector<Rule> world_rules() { return join({world, batch}); }

}  // namespace moecast::rules
