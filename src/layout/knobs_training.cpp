// The rows of optimizer, comm and fsdp.
#include "layout/knob_values.hpp"

namespace moecast {
namespace {

std::vector<Knob> optimizer() {
  return {
      knob({"optimizer.distributed", "", "--use-distributed-optimizer",
            "optimizer.use_distributed_optimizer", "true",
            "Shards optimizer states over the data-parallel ranks."},
           field(&Layout::distributed_optimizer), BooleanKind{}),
      knob({"optimizer.grad_dtype", "", "--accumulate-allreduce-grads-in-fp32",
            "mixed_precision.grad_reduce_in_fp32", "fp32",
            "Type of the gradient buffer that is accumulated into and reduced (bf16: "
            "--grad-reduce-in-bf16, Bridge grad_reduce_in_fp32=false).",
            true},
           field(&Layout::grad_dtype), ChoiceKind<DType>{{"fp32", "bf16"}}),
      knob({"optimizer.master_dtype", "", "--main-params-dtype", "optimizer.main_params_dtype",
            "fp32", "Type of the master weights (fp16 needs the precision-aware optimizer)."},
           field(&Layout::master_dtype), ChoiceKind<DType>{{"fp32", "fp16"}}),
      knob({"optimizer.moment_dtype", "", "--exp-avg-dtype", "optimizer.exp_avg_dtype", "fp32",
            "Type of both Adam moments (exp_avg and exp_avg_sq; below fp32 needs the "
            "precision-aware optimizer)."},
           field(&Layout::moment_dtype), ChoiceKind<DType>{}),
      knob({"optimizer.precision_aware", "", "--use-precision-aware-optimizer",
            "optimizer.use_precision_aware_optimizer", "false",
            "Transformer Engine's fused Adam that keeps states in the types above."},
           field(&Layout::precision_aware_optimizer), BooleanKind{}),
  };
}

std::vector<Knob> comm() {
  return {
      knob({"comm.overlap_grad_reduce", "", "--overlap-grad-reduce",
            "comm_overlap.overlap_grad_reduce", "true",
            "Reduces gradient buckets while the last backward passes still run."},
           field(&Layout::overlap_grad_reduce), BooleanKind{}),
      knob({"comm.overlap_param_gather", "", "--overlap-param-gather",
            "comm_overlap.overlap_param_gather", "true",
            "Gathers updated parameters while the first forward passes already run."},
           field(&Layout::overlap_param_gather), BooleanKind{}),
      knob({"comm.tp_comm_overlap", "", "--tp-comm-overlap", "comm_overlap.tp_comm_overlap",
            "false", "Overlaps the tp collectives with the dense matrix multiplications."},
           field(&Layout::tp_comm_overlap), BooleanKind{}),
      knob({"comm.cp_comm_type", "", "--cp-comm-type", "model.cp_comm_type", "p2p",
            "How context-parallel ranks exchange keys and values."},
           field(&Layout::cp_comm_type), ChoiceKind<CpCommType>{}),
  };
}

/// null, or {sharding: NAME}.
struct FsdpKind {
  static constexpr bool kAsWritten = false;
  static std::string domain() { return "null | {sharding: optim_grads_params}"; }
  static std::string parse(const Value& value, FsdpSharding& out) {
    if (value.is_null()) {
      out = FsdpSharding::none;
      return "";
    }
    if (!value.is_object() || value.size() != 1 || !value.contains("sharding")) {
      return must_be(domain(), value);
    }
    ChoiceKind<FsdpSharding> strategies{{"optim_grads_params"}};
    return strategies.parse(value["sharding"], out);
  }
  static Value show(FsdpSharding value) {
    if (value == FsdpSharding::none) return nullptr;
    return {{"sharding", enum_text(value)}};
  }
};

}  // namespace

std::vector<Knob> training_knobs() {
  std::vector<Knob> rows = optimizer();
  for (Knob& row : comm()) rows.push_back(std::move(row));
  rows.push_back(knob({"fsdp", "", "--data-parallel-sharding-strategy",
                       "ddp.data_parallel_sharding_strategy", "null",
                       "Megatron-FSDP: shards parameters, gradients and optimizer states over the "
                       "data-parallel ranks (use_megatron_fsdp).",
                       true},
                      field(&Layout::fsdp), FsdpKind{}));
  return rows;
}

}  // namespace moecast
