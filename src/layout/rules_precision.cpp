/// Rules of number formats.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kTable = "moe-optimization-workflow: low-precision candidates";

bool block_scaled_32(In in) { return recipe(in, "mxfp8"_w) || fp4(in); }
std::string_view format_text(In in) {
  return fp4(in) ? "nvfp4" : recipe(in, "mxfp8"_w) ? "mxfp8" : text_of(in.c.fp8_recipe);
}
std::string gpu_text(In in) {
  return fmt::format("{} on {} (compute capability {})", format_text(in), in.at.gpu,
                     in.at.compute_capability);
}
bool bf16_layers_broken(In in) {
  const MegatronConfig& c = in.c;
  const int most = c.num_layers / c.pipeline_model_parallel_size;
  return c.first_last_layers_bf16 && !in.at.run_file &&
         (c.num_layers_at_start_in_bf16 < 0 || c.num_layers_at_start_in_bf16 > most ||
          c.num_layers_at_end_in_bf16 < 0 || c.num_layers_at_end_in_bf16 > most);
}

std::vector<Rule> format_rows() {
  return {
      error("FP16-AND-BF16", READS_NUMBERS, "fp16 excludes bf16", "choose one", kTransformerConfig,
            WHEN(c.fp16 && c.bf16)),
      error("FP8-AND-FP4", "fp8_format fp4_format", "FP8 excludes FP4", "choose one",
            kTransformerConfig, WHEN(fp8(in) && fp4(in))),
      error("FP8-PARAM", "fp8_param_gather fp8_format", "fp8_param_gather needs FP8",
            "turn fp8_param_gather off", kTransformerConfig, WHEN(c.fp8_param_gather && !fp8(in))),
      error("FP4-PARAM", "fp4_param_gather fp4_format", "fp4_param_gather needs FP4",
            "turn fp4_param_gather off", kTransformerConfig, WHEN(c.fp4_param_gather && !fp4(in))),
      error("FP8-PARAM-OPTIMIZER",
            "fp8_param_gather use_distributed_optimizer use_megatron_fsdp use_torch_fsdp2 "
            "optimizer",
            "fp8_param_gather needs the distributed optimizer or FSDP",
            "pass --use-distributed-optimizer", kArguments,
            WHEN(c.fp8_param_gather && !in.asked.use_distributed_optimizer && !c.use_torch_fsdp2 &&
                 !megatron_fsdp(in)))
          .by(kLM),
      error("CUSTOM-RECIPE",
            "fp8_format fp8_recipe fp4_format fp4_recipe fp8_quantizer_factory "
            "fp4_quantizer_factory",
            "recipe custom needs a quantizer factory", "choose another recipe", kTransformerConfig,
            WHEN((recipe(in, "custom"_w) && c.fp8_quantizer_factory.empty()) ||
                 (fp4(in) && c.fp4_recipe == "custom"_w && c.fp4_quantizer_factory.empty()))),
      error("MXFP8-BUFFERS-ALONE",
            "reuse_grad_buf_for_mxfp8_param_ag fp8_param_gather use_megatron_fsdp",
            "reuse_grad_buf_for_mxfp8_param_ag needs fp8_param_gather",
            "set fp8_param_gather, or turn the reuse off", kDdp,
            WHEN(c.reuse_grad_buf_for_mxfp8_param_ag && !c.fp8_param_gather))
          .logs("fp8_param_gather must be enabled when reuse_grad_buf_for_mxfp8_param_ag"),
      error(
          "MXFP8-BUFFERS-STEP",
          "reuse_grad_buf_for_mxfp8_param_ag overlap_param_gather_with_optimizer_step "
          "fp8_param_gather",
          "reuse_grad_buf_for_mxfp8_param_ag excludes overlap_param_gather_with_optimizer_step",
          "turn one of them off", kOptimizerConfig,
          WHEN(c.reuse_grad_buf_for_mxfp8_param_ag && c.overlap_param_gather_with_optimizer_step)),
      error("FIRST-LAST-BF16", "first_last_layers_bf16 " READS_FP8,
            "first_last_layers_bf16 excludes FP8 delayed scaling", "use another FP8 recipe",
            kTransformerConfig, WHEN(c.first_last_layers_bf16 && recipe(in, "delayed"_w)))
          .says([](In) { return std::string("first_last_layers_bf16 with fp8_delayed"); }),
      error("FIRST-LAST-COUNTS",
            "first_last_layers_bf16 num_layers_at_start_in_bf16 num_layers_at_end_in_bf16 "
            "num_layers pipeline_model_parallel_size",
            "the bf16 layers at each end number 0 .. layers / PP", "lower the counts",
            kTransformerConfig, bf16_layers_broken),
      error("FP8-OUTPUT-PROJ", "fp8_output_proj " READS_FP8, "fp8_output_proj needs mxfp8",
            "turn fp8_output_proj off", kTransformerConfig,
            WHEN(c.fp8_output_proj && !recipe(in, "mxfp8"_w))),
      error("FP8-INPUT-STORE", "activation_func_fp8_input_store swiglu",
            "activation_func_fp8_input_store needs SwiGLU", "turn it off", kTransformerConfig,
            WHEN(c.activation_func_fp8_input_store && !c.swiglu)),
      error("FP32-RESIDUAL", "fp32_residual_connection " READS_NUMBERS,
            "fp32_residual_connection needs bf16 or fp16", "turn it off", kArguments,
            WHEN(c.fp32_residual_connection && !c.fp16 && !c.bf16))
          .by(kLM),
      error("CROSS-ENTROPY-TE", "cross_entropy_loss_fusion cross_entropy_fusion_impl",
            "Megatron-LM refuses Transformer Engine's cross-entropy fusion",
            "use --cross-entropy-fusion-impl native", kArguments,
            WHEN(c.cross_entropy_loss_fusion && c.cross_entropy_fusion_impl == "te"_w))
          .by(kLM),
  };
}

std::vector<Rule> gpu_rows() {
  return {
      error("PRECISION-BLACKWELL", "fp8_format fp8_recipe fp4_format gpu",
            "mxfp8 and nvfp4 need compute capability 10 or later", "use fp8_blockwise or bf16",
            kMixedPrecision,
            WHEN(block_scaled_32(in) && at.compute_capability > 0 && !blackwell(in)))
          .at(Phase::runtime)
          .section(kTable)
          .says(gpu_text),
      error("PRECISION-FP8", "fp8_format fp8_recipe gpu",
            "FP8 needs compute capability 8.9 or later", "use bf16", "TransformerEngine fp8.py",
            WHEN(quantized(in) && !block_scaled_32(in) && at.compute_capability > 0 &&
                 at.compute_capability < 8.9))
          .at(Phase::runtime)
          .section(kTable)
          .says(gpu_text),
      warning("PRECISION-BLOCKWISE", "fp8_format fp8_recipe gpu",
              "fp8_blockwise is Hopper's recipe", "use mxfp8 on Blackwell", kMixedPrecision,
              WHEN(recipe(in, "blockwise"_w) && blackwell(in)))
          .section(kTable)
          .says(gpu_text),
      warning("MXFP8-MEMORY", "fp8_param_gather reuse_grad_buf_for_mxfp8_param_ag " READS_FP8,
              "mxfp8 without fp8_param_gather and buffer reuse keeps a second copy of the weights",
              "set fp8_param_gather and reuse_grad_buf_for_mxfp8_param_ag", kOptimizerConfig,
              WHEN(recipe(in, "mxfp8"_w) && !at.run_file &&
                   (!c.fp8_param_gather || !c.reuse_grad_buf_for_mxfp8_param_ag))),
  };
}

}  // namespace

std::vector<Rule> precision_rules() { return join({format_rows, gpu_rows}); }

}  // namespace moecast::rules
