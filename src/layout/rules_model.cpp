/// Rules of the model's shape against TP, EP and ETP, and of tensor and sequence parallelism.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kDivide = "megatron/core/utils.py divide";
constexpr std::string_view kSpecs = "megatron/core/models/gpt/gpt_layer_specs.py";

std::string tp_text(In in, std::string_view what) {
  return fmt::format("{} of {} do not divide by TP {}", what, in.at.model,
                     in.c.tensor_model_parallel_size);
}
bool heads_broken(In in) {
  const int tp = in.c.tensor_model_parallel_size;
  return any_attention(in, [tp](const AttentionShape& a) { return a.heads % tp != 0; });
}
bool query_groups_broken(In in) {
  const int tp = in.c.tensor_model_parallel_size;
  return any_attention(in, [tp](const AttentionShape& a) {
    const int groups = a.query_groups;
    return !a.latent && groups > 0 && groups % tp != 0 && tp % groups != 0;
  });
}
bool gdn_broken(In in) {
  const int key = in.c.linear_num_key_heads.value_or(0);
  const int value = in.c.linear_num_value_heads.value_or(0);
  const long split = product({in.c.tensor_model_parallel_size, in.c.context_parallel_size});
  return key > 0 && (value % key != 0 || value % split != 0 || key % split != 0);
}

std::vector<Rule> tensor_rows() {
  return {
      error("HEADS-TP", "num_attention_heads tensor_model_parallel_size",
            "attention heads are a multiple of TP", "choose a TP that divides the heads",
            kTransformerConfig, heads_broken)
          .logs("num_attention_heads")
          .says([](In in) { return tp_text(in, "attention heads"); }),
      error("KV-HEADS-TP", "num_query_groups num_attention_heads tensor_model_parallel_size",
            "query groups mod TP = 0 or TP mod query groups = 0",
            "choose a TP that divides the query groups, or a multiple of them",
            "megatron/core/transformer/attention.py", query_groups_broken)
          .logs("num_query_groups")
          .says([](In in) { return tp_text(in, "query groups"); }),
      error("HIDDEN-HEADS", "hidden_size num_attention_heads kv_channels",
            "without kv_channels the hidden size is a multiple of the heads", "state kv_channels",
            kArguments,
            WHEN(!in.asked.kv_channels && c.num_attention_heads > 0 &&
                 c.hidden_size % c.num_attention_heads != 0))
          .by(kLM),
      error("GDN-HEADS",
            "linear_num_key_heads linear_num_value_heads tensor_model_parallel_size "
            "context_parallel_size",
            "gated delta net: value heads mod key heads = 0, both mod (TP * CP) = 0",
            "choose TP * CP that divides the linear-attention heads", kTransformerConfig,
            gdn_broken)
          .says([](In in) {
            return fmt::format(
                "gated-delta-net heads do not divide by TP*CP = {}",
                product({in.c.tensor_model_parallel_size, in.c.context_parallel_size}));
          }),
      error("MAMBA-HEADS-TP", "mamba_num_heads mamba_num_groups tensor_model_parallel_size",
            "Mamba heads and groups are multiples of TP", "choose a TP that divides them",
            "megatron/core/ssm/mamba_mixer.py",
            WHEN(c.mamba_num_heads.value_or(0) % c.tensor_model_parallel_size != 0 ||
                 c.mamba_num_groups.value_or(0) % c.tensor_model_parallel_size != 0))
          .at(Phase::build)
          .says([](In in) { return tp_text(in, "Mamba heads or groups"); }),
  };
}

std::vector<Rule> sequence_rows() {
  return {
      error("DENSE-FFN-TP", "ffn_hidden_size tensor_model_parallel_size moe_layer_freq",
            "dense FFN width is a multiple of TP", "choose a TP that divides ffn_hidden_size",
            kDivide,
            WHEN(at.has_dense_layer &&
                 c.ffn_hidden_size.value_or(0) % c.tensor_model_parallel_size != 0))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("dense FFN width {} does not divide by TP {}",
                               in.c.ffn_hidden_size.value_or(0), in.c.tensor_model_parallel_size);
          }),
      error("MOE-TP-NEEDS-SP", "sequence_parallel tensor_model_parallel_size num_experts",
            "MoE with TP > 1 needs sequence parallel",
            "set layout.sequence_parallel to true or auto", kMoeLayer,
            WHEN(moe(in) && c.tensor_model_parallel_size > 1 && !c.sequence_parallel))
          .at(Phase::first_step)
          .logs("During training, performance may degrade if MoE and tensor parallelism")
          .says([](In in) {
            return fmt::format(
                "TP {} without sequence parallel: the MoE layer refuses its first forward",
                in.c.tensor_model_parallel_size);
          }),
      error("SP-SEQUENCE",
            "tensor_model_parallel_size context_parallel_size seq_length sequence_parallel",
            "sequence parallel: sequence mod (TP * CP) = 0",
            "choose a sequence that TP * CP divides", "megatron/core/tensor_parallel/mappings.py",
            WHEN(c.tensor_model_parallel_size > 1 && c.sequence_parallel &&
                 c.seq_length % (static_cast<long>(c.tensor_model_parallel_size) *
                                 c.context_parallel_size) !=
                     0))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format(
                "sequence {} does not divide by TP*CP = {}", in.c.seq_length,
                product({in.c.tensor_model_parallel_size, in.c.context_parallel_size}));
          }),
      error("TP-OVERLAP-SP", "tp_comm_overlap sequence_parallel tensor_model_parallel_size",
            "tp_comm_overlap needs sequence parallel", "turn sequence parallel on", kArguments,
            WHEN(c.tp_comm_overlap && !c.sequence_parallel))
          .by(kLM)
          .logs("Tensor parallel communication/GEMM overlap can happen only when sequence"),
      error("SAVED-ACTIVATIONS",
            "distribute_saved_activations sequence_parallel tensor_model_parallel_size "
            "recompute_granularity recompute_method",
            "distribute_saved_activations needs TP > 1, full recompute with a method, and no "
            "sequence parallel",
            "turn it off", kArguments,
            WHEN(c.distribute_saved_activations &&
                 (c.sequence_parallel || c.tensor_model_parallel_size == 1 || !full_recompute(in) ||
                  !c.recompute_method)))
          .by(kLM),
      error("SAVED-ACTIVATIONS-SP",
            "distribute_saved_activations sequence_parallel recompute_granularity",
            "distribute_saved_activations excludes sequence parallel", "turn it off",
            kTransformerConfig,
            WHEN(c.distribute_saved_activations && c.sequence_parallel && c.recompute_granularity))
          .by(kBridge),
  };
}

std::vector<Rule> expert_shape_rows() {
  return {
      error("EP-NEEDS-EXPERTS", "expert_model_parallel_size num_experts",
            "EP > 1 needs a model with experts", "set EP to 1", kTransformerConfig,
            WHEN(c.expert_model_parallel_size > 1 && !moe(in)))
          .logs("num_moe_experts must be non None to use expert-parallel")
          .says([](In in) {
            return fmt::format("EP {} but {} has no experts", in.c.expert_model_parallel_size,
                               in.at.model);
          }),
      error("EXPERTS-DIVIDE-EP", "expert_model_parallel_size num_experts",
            "number of experts is a multiple of EP", "choose an EP that divides the expert count",
            kMoeLayer, WHEN(moe(in) && *c.num_experts % c.expert_model_parallel_size != 0))
          .logs("Number of experts should be a multiple of expert model parallel")
          .says([](In in) {
            return fmt::format("{} experts do not divide by EP {}", *in.c.num_experts,
                               in.c.expert_model_parallel_size);
          }),
      error("EXPERTS-POSITIVE", "num_experts", "a stated number of experts is positive",
            "leave num_experts out of a dense model", kTransformerConfig,
            WHEN(c.num_experts && *c.num_experts <= 0)),
      error("MOE-LAYER-FREQ", "moe_layer_freq num_layers",
            "a moe_layer_freq list has one entry per layer", "correct the list", kSpecs,
            WHEN(moe(in) && !at.layer_freq_fits))
          .at(Phase::build)
          .logs("Invalid length of moe_layer_pattern"),
      error("SHARED-EXPERT-SIZE", "moe_shared_expert_intermediate_size",
            "a stated shared-expert width is positive", "leave it out", kTransformerConfig,
            WHEN(c.moe_shared_expert_intermediate_size &&
                 *c.moe_shared_expert_intermediate_size <= 0))
          .logs("moe_shared_expert_intermediate_size must be"),
      error("LATENT-SIZE", "moe_latent_size num_experts",
            "a latent width is positive and needs experts", "leave moe_latent_size out", kArguments,
            WHEN(c.moe_latent_size && (*c.moe_latent_size <= 0 || !moe(in)))),
      error("MOE-BIAS-ETP", "add_bias_linear expert_tensor_parallel_size num_experts",
            "experts with linear biases need ETP 1", "turn biases off or set ETP to 1",
            kTransformerConfig, WHEN(c.add_bias_linear && moe(in) && etp(in) > 1)),
      error("EXPERT-FFN-ETP", "expert_tensor_parallel_size moe_ffn_hidden_size",
            "expert FFN width is a multiple of ETP",
            "choose an ETP that divides moe_ffn_hidden_size", kDivide,
            WHEN(moe(in) && c.moe_ffn_hidden_size.value_or(0) % etp(in) != 0))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("expert FFN width {} does not divide by ETP {}",
                               in.c.moe_ffn_hidden_size.value_or(0), etp(in));
          }),
      error("SHARED-FFN-TP", "tensor_model_parallel_size moe_shared_expert_intermediate_size",
            "shared-expert width is a multiple of TP", "choose a TP that divides it", kDivide,
            WHEN(c.moe_shared_expert_intermediate_size.value_or(0) % c.tensor_model_parallel_size !=
                 0))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("shared-expert width {} does not divide by TP {}",
                               in.c.moe_shared_expert_intermediate_size.value_or(0),
                               in.c.tensor_model_parallel_size);
          }),
  };
}

}  // namespace

std::vector<Rule> model_rules() { return join({tensor_rows, sequence_rows, expert_shape_rows}); }

}  // namespace moecast::rules
