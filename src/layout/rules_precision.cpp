/// Rules of precision, optimizer, data parallelism and FSDP.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kOptimizer = "megatron/core/optimizer/optimizer_config.py";
constexpr std::string_view kMixedPrecision = "megatron/bridge/training/mixed_precision.py";

bool block_scaled_32(In in) {
  return in.layout.precision == Precision::mxfp8 || in.layout.precision == Precision::nvfp4;
}
std::string gpu_text(In in) {
  return fmt::format("{} on {} (compute capability {})", to_string(in.layout.precision),
                     in.system.gpu.name, in.system.gpu.compute_capability);
}

std::vector<Rule> precision_rows() {
  return {
      runtime_error(
          "PRECISION-BLACKWELL", {"precision", "cluster.system"},
          "mxfp8 and nvfp4 need compute capability 10 or later", "use fp8_blockwise or bf16",
          kMixedPrecision, [](In in) { return block_scaled_32(in) && !blackwell(in); }, gpu_text),
      runtime_error(
          "PRECISION-FP8", {"precision", "cluster.system"},
          "FP8 needs compute capability 8.9 or later", "use bf16", "TransformerEngine fp8.py",
          [](In in) {
            return quantized(in) && !block_scaled_32(in) && in.system.gpu.compute_capability < 8.9;
          },
          gpu_text),
      warning(
          "PRECISION-BLOCKWISE", {"precision", "cluster.system"},
          "fp8_blockwise is Hopper's recipe", "use mxfp8 on Blackwell", kMixedPrecision,
          [](In in) { return in.layout.precision == Precision::fp8_blockwise && blackwell(in); },
          gpu_text),
      error(
          "FIRST-LAST-BF16", {"software.features", "precision"},
          "first_last_layers_bf16 excludes FP8 delayed scaling", "use another FP8 recipe",
          kTransformerConfig,
          [](In in) {
            return in.layout.precision == Precision::fp8_delayed &&
                   feature(in, "first_last_layers_bf16");
          },
          [](In) { return std::string("first_last_layers_bf16 with fp8_delayed"); }),
  };
}

std::vector<Rule> optimizer_rows() {
  return {
      error(
          "OPTIMIZER-DTYPES",
          {"optimizer.master_dtype", "optimizer.moment_dtype", "optimizer.precision_aware"},
          "master weights and moments other than fp32 need the precision-aware optimizer",
          "turn optimizer.precision_aware on", kOptimizer,
          [](In in) {
            return !in.layout.precision_aware_optimizer &&
                   (in.layout.master_dtype != DType::fp32 || in.layout.moment_dtype != DType::fp32);
          },
          [](In) {
            return std::string("optimizer states below fp32 without optimizer.precision_aware");
          }),
      runtime_error(
          "OPTIMIZER-MASTER-DTYPE", {"optimizer.master_dtype"}, "master weights are fp32 or fp16",
          "set optimizer.master_dtype to fp32",
          "TransformerEngine pytorch/optimizers/fused_adam.py",
          [](In in) {
            return in.layout.precision_aware_optimizer && in.layout.master_dtype != DType::fp32 &&
                   in.layout.master_dtype != DType::fp16;
          },
          [](In) { return std::string("FusedAdam keeps master weights in fp32 or fp16 only"); }),
      warning(
          "PARAM-GATHER-OPTIMIZER",
          {"comm.overlap_param_gather", "optimizer.distributed", "comm.overlap_grad_reduce"},
          "overlap_param_gather needs the distributed optimizer and overlap_grad_reduce (Bridge "
          "turns "
          "the "
          "distributed optimizer on, Megatron-LM refuses)",
          "turn comm.overlap_param_gather off, or the other two on", kBridgeConfig,
          [](In in) {
            return in.layout.overlap_param_gather && in.layout.fsdp == FsdpSharding::none &&
                   (!in.layout.distributed_optimizer || !in.layout.overlap_grad_reduce);
          },
          [](In in) {
            return fmt::format("overlap_param_gather without {}",
                               in.layout.distributed_optimizer ? "overlap_grad_reduce"
                                                               : "the distributed optimizer");
          }),
      warning(
          "FSDP-OPTIMIZER", {"fsdp", "optimizer.distributed"},
          "Megatron-FSDP needs the distributed optimizer (Bridge turns it on)",
          "turn optimizer.distributed on", kBridgeConfig,
          [](In in) {
            return in.layout.fsdp != FsdpSharding::none && !in.layout.distributed_optimizer;
          },
          [](In) { return std::string("FSDP without the distributed optimizer"); }),
      error(
          "FSDP-CONNECTIONS", {"fsdp", "software.env"},
          "Megatron-FSDP: CUDA_DEVICE_MAX_CONNECTIONS must not be 1", "set it to 8 or 32",
          kBridgeConfig,
          [](In in) {
            return in.layout.fsdp != FsdpSharding::none &&
                   env(in, "CUDA_DEVICE_MAX_CONNECTIONS") == "1";
          },
          [](In) { return std::string("FSDP with CUDA_DEVICE_MAX_CONNECTIONS=1"); }),
  };
}

}  // namespace

std::vector<Rule> precision_rules() { return join({precision_rows, optimizer_rows}); }

}  // namespace moecast::rules
