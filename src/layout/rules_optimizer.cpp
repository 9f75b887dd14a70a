/// Rules of the optimizer and of data parallelism.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kDdpInit = "megatron/core/distributed/distributed_data_parallel.py";

bool low_precision_states(In in) {
  const MegatronConfig& c = in.c;
  return c.main_grads_dtype != "fp32"_w || c.main_params_dtype != "fp32"_w ||
         c.exp_avg_dtype != "fp32"_w || c.exp_avg_sq_dtype != "fp32"_w;
}

std::vector<Rule> state_rows() {
#define READS_STATES "main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype"
  return {
      error("OPTIMIZER-DTYPES", READS_STATES " use_precision_aware_optimizer",
            "master weights and moments other than fp32 need the precision-aware optimizer",
            "turn optimizer.precision_aware on", kOptimizerConfig,
            WHEN(!c.use_precision_aware_optimizer && low_precision_states(in)))
          .logs("can only be fp32 when not using precision-aware optimizer")
          .says([](In) {
            return std::string("optimizer states below fp32 without optimizer.precision_aware");
          }),
      error("PRECISION-AWARE-ADAM", "use_precision_aware_optimizer optimizer",
            "the precision-aware optimizer is Adam", "set optimizer to adam", kOptimizerConfig,
            WHEN(c.use_precision_aware_optimizer && c.optimizer != "adam"_w))
          .logs("--use-precision-aware-optimizer only supported with adam"),
      error("OPTIMIZER-MASTER-DTYPE", "main_params_dtype use_precision_aware_optimizer",
            "master weights are fp32 or fp16", "set optimizer.master_dtype to fp32",
            "TransformerEngine pytorch/optimizers/fused_adam.py",
            WHEN(c.use_precision_aware_optimizer && c.main_params_dtype != "fp32"_w &&
                 c.main_params_dtype != "fp16"_w))
          .at(Phase::runtime)
          .says([](In) {
            return std::string("FusedAdam keeps master weights in fp32 or fp16 only");
          }),
      error("GRADS-FP32", "accumulate_allreduce_grads_in_fp32 main_grads_dtype",
            "accumulate_allreduce_grads_in_fp32 needs main_grads_dtype fp32", "drop one of the two",
            kArguments,
            WHEN(c.accumulate_allreduce_grads_in_fp32 && c.main_grads_dtype != "fp32"_w))
          .by(kLM),
      error("GRADS-TWICE", "accumulate_allreduce_grads_in_fp32 grad_reduce_in_bf16",
            "accumulate_allreduce_grads_in_fp32 excludes grad_reduce_in_bf16",
            "drop one of the two", kArguments,
            WHEN(in.asked.accumulate_allreduce_grads_in_fp32 && c.grad_reduce_in_bf16))
          .by(kLM),
  };
}

std::vector<Rule> overlap_rows() {
  return {
      error("PARAM-GATHER-DISTRIBUTED",
            "overlap_param_gather use_distributed_optimizer use_megatron_fsdp optimizer",
            "overlap_param_gather needs the distributed optimizer",
            "pass --use-distributed-optimizer", kArguments,
            WHEN(c.overlap_param_gather == true && !c.use_distributed_optimizer &&
                 !megatron_fsdp(in) && !c.use_layer_wise_distributed_optimizer &&
                 c.optimizer != "dist_muon"_w))
          .by(kLM)
          .logs("--overlap-param-gather only supported with distributed optimizer"),
      error("PARAM-GATHER-REDUCE", "overlap_param_gather overlap_grad_reduce",
            "overlap_param_gather needs overlap_grad_reduce", "pass --overlap-grad-reduce",
            kArguments, WHEN(c.overlap_param_gather == true && c.overlap_grad_reduce != true))
          .by(kLM)
          .logs("Must use --overlap-param-gather with --overlap-grad-reduce"),
      error("PARAM-GATHER-STEP",
            "overlap_param_gather_with_optimizer_step overlap_param_gather "
            "use_distributed_optimizer " READS_VPP,
            "overlap_param_gather_with_optimizer_step needs the distributed optimizer, "
            "overlap_param_gather, a virtual pipeline and ckpt_format torch",
            "turn it off", kArguments,
            WHEN(c.overlap_param_gather_with_optimizer_step &&
                 (!c.use_distributed_optimizer || c.overlap_param_gather != true || in.vpp < 2 ||
                  c.ckpt_format != "torch"_w)))
          .by(kLM),
      error("DDP-BUCKETS", "ddp_num_buckets ddp_bucket_size " READS_DP " use_distributed_optimizer",
            "num_buckets excludes bucket_size (which Bridge sets itself with the distributed "
            "optimizer and DP > 1)",
            "leave num_buckets out", kDdp, WHEN(c.ddp_num_buckets && c.ddp_bucket_size)),
      error("DDP-BUCKETS-POSITIVE", "ddp_num_buckets", "num_buckets is positive",
            "leave num_buckets out", kDdp, WHEN(c.ddp_num_buckets && *c.ddp_num_buckets < 1)),
      error("NCCL-UB-EXPANDABLE", "nccl_ub " READS_ALLOCATOR " pytorch_version",
            "NCCL user buffers with expandable segments need PyTorch >= 2.11",
            "turn expandable segments off", kDdp,
            WHEN(c.nccl_ub && at.expandable_segments && at.versions.pytorch < 2011000)),
      error("INSTANCES-DISTRIBUTED",
            "num_distributed_optimizer_instances use_distributed_optimizer",
            "several optimizer instances need the distributed optimizer",
            "turn use_distributed_optimizer on", kDdpInit,
            WHEN(c.num_distributed_optimizer_instances.value_or(1) > 1 &&
                 !c.use_distributed_optimizer))
          .at(Phase::runtime),
      error("PER-TOKEN-LOSS", "calculate_per_token_loss ddp_average_in_collective",
            "calculate_per_token_loss excludes averaging in the collective",
            "drop --ddp-average-in-collective", kDdpInit,
            WHEN(c.calculate_per_token_loss && c.ddp_average_in_collective))
          .at(Phase::runtime),
      error("GLOO-CHECKPOINTS", "use_gloo_process_groups use_distributed_optimizer ckpt_format",
            "the distributed optimizer without gloo groups needs a distributed checkpoint format",
            "set ckpt_format to torch_dist", kArguments,
            WHEN(!c.use_gloo_process_groups && c.use_distributed_optimizer &&
                 c.ckpt_format == "torch"_w)),
      warning(
          "PARAM-GATHER-OPTIMIZER",
          "overlap_param_gather use_distributed_optimizer overlap_grad_reduce "
          "use_megatron_fsdp",
          "overlap_param_gather needs the distributed optimizer and overlap_grad_reduce (Bridge "
          "turns the distributed optimizer on, Megatron-LM refuses)",
          "turn comm.overlap_param_gather off, or the other two on", kBridgeConfig,
          WHEN(in.asked.overlap_param_gather == true && !megatron_fsdp(in) &&
               (!c.use_distributed_optimizer || c.overlap_grad_reduce != true)))
          .by(kBridge)
          .says([](In in) {
            return fmt::format("overlap_param_gather without {}",
                               in.c.use_distributed_optimizer ? "overlap_grad_reduce"
                                                              : "the distributed optimizer");
          }),
  };
}

}  // namespace

std::vector<Rule> optimizer_rules() { return join({state_rows, overlap_rows}); }

}  // namespace moecast::rules
