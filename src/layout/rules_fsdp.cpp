/// Rules of FSDP and of checkpoint formats.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

bool v1(In in) { return megatron_fsdp(in) && in.c.megatron_fsdp_version == 1; }
bool v2(In in) { return megatron_fsdp(in) && in.c.megatron_fsdp_version == 2; }
bool torch_fsdp(In in) { return in.c.use_torch_fsdp2; }
bool model_parallel(In in) {
  return in.c.tensor_model_parallel_size > 1 || in.c.pipeline_model_parallel_size > 1 ||
         in.c.context_parallel_size > 1 || in.c.expert_model_parallel_size > 1;
}

std::vector<Rule> megatron_rows() {
  return {
      error("FSDP-CONNECTIONS", "use_megatron_fsdp env.CUDA_DEVICE_MAX_CONNECTIONS",
            "Megatron-FSDP: CUDA_DEVICE_MAX_CONNECTIONS must not be 1", "set it to 8 or 32",
            kBridgeConfig, WHEN(v1(in) && at.max_connections == 1))
          .logs("FSDP requires CUDA_DEVICE_MAX_CONNECTIONS value large than one")
          .says([](In) { return std::string("FSDP with CUDA_DEVICE_MAX_CONNECTIONS=1"); }),
      error("FSDP-CHECKPOINTS", "use_megatron_fsdp ckpt_format",
            "Megatron-FSDP and ckpt_format fsdp_dtensor go together", "set both or none",
            kArguments, WHEN(megatron_fsdp(in) != (c.ckpt_format == "fsdp_dtensor"_w)))
          .by(kLM),
      error(
          "FSDP-CHECKPOINTS-SAVED", "use_megatron_fsdp ckpt_format save load",
          "Megatron-FSDP saves and loads with ckpt_format fsdp_dtensor",
          "set checkpoint.ckpt_format to fsdp_dtensor", kBridgeConfig,
          WHEN(v1(in) && (!c.save.empty() || !c.load.empty()) && c.ckpt_format != "fsdp_dtensor"_w))
          .by(kBridge),
      error("FSDP-OPTIMIZERS", "use_megatron_fsdp optimizer",
            "Megatron-FSDP trains with adam or sgd", "set optimizer to adam", kBridgeConfig,
            WHEN(megatron_fsdp(in) && c.optimizer != "adam"_w && c.optimizer != "sgd"_w))
          .by(kLM),
      error("FSDP-MESH-ORDER", "use_megatron_fsdp use_tp_pp_dp_mapping",
            "Megatron-FSDP excludes use_tp_pp_dp_mapping", "drop the mapping", kBridgeConfig,
            WHEN(megatron_fsdp(in) && c.use_tp_pp_dp_mapping))
          .by(kBridge),
      error("FSDP-META-DEVICE",
            "use_megatron_fsdp data_parallel_sharding_strategy init_model_with_meta_device",
            "Megatron-FSDP with no_shard excludes initialisation on the meta device",
            "choose another strategy", kArguments,
            WHEN(v1(in) && c.init_model_with_meta_device &&
                 c.data_parallel_sharding_strategy == "no_shard"_w))
          .by(kLM),
      error("FSDP-REGISTRATION", "fsdp_manual_registration nccl_ub use_megatron_fsdp",
            "fsdp_manual_registration needs Megatron-FSDP and nccl_ub", "turn it off", kArguments,
            WHEN(c.fsdp_manual_registration && (!megatron_fsdp(in) || !c.nccl_ub)))
          .by(kLM),
      error("FSDP-REGISTRATION-BUFFERS", "fsdp_manual_registration nccl_ub use_megatron_fsdp",
            "with Megatron-FSDP, fsdp_manual_registration needs nccl_ub", "turn nccl_ub on",
            kBridgeConfig, WHEN(c.fsdp_manual_registration && megatron_fsdp(in) && !c.nccl_ub))
          .by(kBridge),
      error("FSDP-V2",
            "use_megatron_fsdp megatron_fsdp_version tensor_model_parallel_size "
            "pipeline_model_parallel_size context_parallel_size expert_model_parallel_size "
            "num_experts fp8_format fp4_format " READS_NUMBERS,
            "Megatron-FSDP v2: bf16 without FP8 or FP4, TP = PP = CP = EP = 1, no experts",
            "use version 1", kBridgeConfig,
            WHEN(v2(in) && (model_parallel(in) || moe(in) || quantized(in) || !c.bf16)))
          .by(kBridge),
      error("FSDP-V2-DISTRIBUTED",
            "use_megatron_fsdp megatron_fsdp_version "
            "use_distributed_optimizer",
            "Megatron-FSDP v2 excludes the distributed optimizer",
            "drop --use-distributed-optimizer", kArguments,
            WHEN(v2(in) && c.use_distributed_optimizer))
          .by(kLM),
      warning("FSDP-OPTIMIZER", "use_megatron_fsdp use_distributed_optimizer",
              "Megatron-FSDP needs the distributed optimizer (Bridge turns it on)",
              "turn optimizer.distributed on", kBridgeConfig,
              WHEN(megatron_fsdp(in) && !c.use_distributed_optimizer))
          .by(kBridge)
          .says([](In) { return std::string("FSDP without the distributed optimizer"); }),
  };
}

std::vector<Rule> torch_rows() {
  return {
      error("TORCH-FSDP-MESH",
            "use_torch_fsdp2 pipeline_model_parallel_size expert_model_parallel_size",
            "torch FSDP2 needs PP 1 and EP 1", "use Megatron-FSDP", kArguments,
            WHEN(torch_fsdp(in) &&
                 (c.pipeline_model_parallel_size > 1 || c.expert_model_parallel_size > 1)))
          .by(kLM),
      error("TORCH-FSDP-OPTIMIZER", "use_torch_fsdp2 use_distributed_optimizer optimizer",
            "torch FSDP2 excludes the distributed optimizer and emerging optimizers",
            "drop --use-distributed-optimizer", kArguments,
            WHEN(torch_fsdp(in) && (in.asked.use_distributed_optimizer ||
                                    (c.optimizer != "adam"_w && c.optimizer != "sgd"_w))))
          .by(kLM),
      error("TORCH-FSDP-PLAIN",
            "use_torch_fsdp2 untie_embeddings_and_output_weights fp16 "
            "gradient_accumulation_fusion ckpt_format env.CUDA_DEVICE_MAX_CONNECTIONS",
            "torch FSDP2: untied embeddings, no fp16, no gradient_accumulation_fusion, ckpt_format "
            "torch_dist or torch_dcp, CUDA_DEVICE_MAX_CONNECTIONS other than 1",
            "change what it excludes", kArguments,
            WHEN(torch_fsdp(in) &&
                 (!c.untie_embeddings_and_output_weights || c.fp16 ||
                  c.gradient_accumulation_fusion || at.max_connections == 1 ||
                  (c.ckpt_format != "torch_dist"_w && c.ckpt_format != "torch_dcp"_w))))
          .by(kLM),
      error("TORCH-DCP",
            "ckpt_format use_torch_fsdp2 tensor_model_parallel_size pipeline_model_parallel_size",
            "ckpt_format torch_dcp needs torch FSDP2 with TP = PP = 1",
            "set ckpt_format to torch_dist", kArguments,
            WHEN(c.ckpt_format == "torch_dcp"_w &&
                 (!torch_fsdp(in) || c.tensor_model_parallel_size > 1 ||
                  c.pipeline_model_parallel_size > 1)))
          .by(kLM),
  };
}

std::vector<Rule> shard_rows() {
#define READS_SHARDS "tensor_parallel_num_weight_shards tensor_model_parallel_size"
  return {
      error("SHARDS-FP4", READS_SHARDS " fp4_format fp4_param_gather",
            "weight shards in FP4 need fp4_param_gather", "set fp4_param_gather", kArguments,
            WHEN(in.weight_shards > 1 && fp4(in) && !c.fp4_param_gather))
          .by(kLM),
      error("SHARDS-MXFP8",
            READS_SHARDS " fp8_param_gather reuse_grad_buf_for_mxfp8_param_ag " READS_FP8,
            "weight shards in mxfp8 need fp8_param_gather and buffer reuse", "set both", kArguments,
            WHEN(in.weight_shards > 1 && recipe(in, "mxfp8"_w) &&
                 (!c.fp8_param_gather || !c.reuse_grad_buf_for_mxfp8_param_ag)))
          .by(kLM),
  };
}

}  // namespace

std::vector<Rule> fsdp_rules() { return join({megatron_rows, torch_rows, shard_rows}); }

}  // namespace moecast::rules
