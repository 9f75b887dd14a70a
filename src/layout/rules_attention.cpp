/// Rules of attention, positions and context parallelism.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

bool has_dsa(In in) { return in.c.experimental_attention_variant == "dsa"_w; }
bool wants_hierarchy(In in) { return in.c.cp_comm_type.has("a2a+p2p"_w); }
bool hierarchy_broken(In in) {
  const auto& sizes = in.c.hierarchical_context_parallel_sizes;
  if (sizes.empty()) return wants_hierarchy(in);
  long product = 1;
  for (int size : sizes) product = std::min(product * size, 1L << 40);
  return product != in.c.context_parallel_size;
}
/// Ulysses: every CP rank takes heads / TP / CP of the heads; one KV head per TP rank where there
/// are fewer groups than TP.
bool a2a_broken(In in) {
  const int tp = in.c.tensor_model_parallel_size, cp = in.c.context_parallel_size;
  if (cp == 1 || !in.c.cp_comm_type.has("a2a"_w)) return false;
  return any_attention(in, [tp, cp](const AttentionShape& a) {
    const int kv = a.latent ? cp : std::max(1, a.query_groups / tp);
    return a.heads / tp % cp != 0 || kv % cp != 0;
  });
}
bool hybrid_cp_broken(In in) {
  const MegatronConfig& c = in.c;
  return c.hybrid_context_parallel &&
         (c.pipeline_model_parallel_size > 1 || c.use_megatron_fsdp || c.use_torch_fsdp2 ||
          c.dataloader_type != "single"_w || !c.calculate_per_token_loss ||
          in.dp * c.context_parallel_size % 2 != 0);
}

std::vector<Rule> context_rows() {
  return {
      error("CP-SEQUENCE", "context_parallel_size seq_length",
            "CP > 1: sequence mod (2 * CP) = 0 (load-balanced causal halves)",
            "choose a sequence that 2 * CP divides", kArguments,
            WHEN(c.context_parallel_size > 1 && c.seq_length % (2L * c.context_parallel_size) != 0))
          .logs("seq-length should be a multiple of 2 * context-parallel-size")
          .says([](In in) {
            return fmt::format("sequence {} does not divide by 2*CP = {}", in.c.seq_length,
                               2L * in.c.context_parallel_size);
          }),
      error("CP-HIERARCHY-SIZES",
            "cp_comm_type hierarchical_context_parallel_sizes context_parallel_size",
            "hierarchical_context_parallel_sizes multiply to CP whenever they are stated, and "
            "cp_comm_type a2a+p2p states them (also at CP 1)",
            "state sizes whose product is CP, the inner all-to-all first", kBridgeConfig,
            WHEN(!at.run_file && hierarchy_broken(in)))
          .logs("hierarchical_context_parallel_sizes"),
      error("CP-TYPE-LENGTH", "cp_comm_type num_layers context_parallel_size",
            "a list of cp_comm_type has one entry per layer", "state one type for all layers",
            kTransformerConfig,
            WHEN(c.context_parallel_size > 1 && c.cp_comm_type.count > 1 &&
                 c.cp_comm_type.count != c.num_layers))
          .logs("Length of cp_comm_type"),
      error("CP-TYPE-UNKNOWN", "cp_comm_type", "cp_comm_type is p2p, all_gather, a2a or a2a+p2p",
            "choose one of them", "TransformerEngine attention",
            WHEN(c.context_parallel_size > 1 &&
                 c.cp_comm_type.outside({"p2p"_w, "all_gather"_w, "a2a"_w, "a2a+p2p"_w})))
          .at(Phase::runtime),
      error("CP-A2A-HEADS",
            "context_parallel_size cp_comm_type tensor_model_parallel_size num_attention_heads "
            "num_query_groups",
            "a2a context parallel splits heads: heads / TP and KV heads / TP are multiples of CP",
            "use comm.cp_comm_type p2p, or a smaller CP",
            "TransformerEngine attention (context parallel a2a)", a2a_broken)
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("heads per TP rank do not divide by CP {} with cp_comm_type a2a",
                               in.c.context_parallel_size);
          }),
      error("CP-DSA", "context_parallel_size cp_comm_type experimental_attention_variant",
            "DSA attention with CP > 1 needs cp_comm_type all_gather",
            "set comm.cp_comm_type to all_gather", kTransformerConfig,
            WHEN(c.context_parallel_size > 1 && has_dsa(in) && c.multi_latent_attention &&
                 !c.cp_comm_type.has("all_gather"_w)))
          .says([](In in) {
            return fmt::format("DSA attention with CP {} without all_gather",
                               in.c.context_parallel_size);
          }),
      error("DSA-PLAIN", "experimental_attention_variant apply_rope_fusion add_bias_linear",
            "DSA attention excludes rope fusion and linear biases", "turn both off",
            kTransformerConfig,
            WHEN(has_dsa(in) && !at.run_file && (c.apply_rope_fusion || c.add_bias_linear))),
      error(
          "HYBRID-CP",
          "hybrid_context_parallel pipeline_model_parallel_size use_megatron_fsdp "
          "use_torch_fsdp2 dataloader_type calculate_per_token_loss " READS_DP,
          "hybrid context parallel needs PP 1, no FSDP, the single dataloader, per-token loss and "
          "an even number of DP * CP ranks",
          "turn hybrid_context_parallel off", kArguments, hybrid_cp_broken)
          .by(kLM)
          .logs("Hybrid context parallelism"),
      warning(
          "CP-HIERARCHY", "cp_comm_type",
          "a2a+p2p needs hierarchical_context_parallel_sizes whose product is CP (also at CP 1)",
          "state hierarchical_context_parallel_sizes in the recipe; moecast has no knob for it",
          kBridgeConfig, WHEN(at.run_file && wants_hierarchy(in)))
          .says([](In in) {
            return fmt::format(
                "cp_comm_type a2a+p2p with CP {}: the recipe must state "
                "hierarchical_context_parallel_sizes",
                in.c.context_parallel_size);
          }),
  };
}

std::vector<Rule> position_rows() {
  return {
      error("MAX-POSITIONS", "max_position_embeddings seq_length",
            "max_position_embeddings is at least the sequence length",
            "raise max_position_embeddings", kArguments,
            WHEN(c.max_position_embeddings && *c.max_position_embeddings < c.seq_length))
          .by(kLM),
      error("MLA-QUERY-GROUPS", "multi_latent_attention group_query_attention",
            "multi-latent attention excludes grouped-query attention", "drop group_query_attention",
            kArguments, WHEN(c.multi_latent_attention && c.group_query_attention))
          .by(kLM),
      error("MLA-ROPE-FUSION", "multi_latent_attention apply_rope_fusion rope_type",
            "MLA with rope fusion needs the YaRN rope type", "turn rope fusion off",
            kTransformerConfig,
            WHEN(c.multi_latent_attention && c.apply_rope_fusion && c.rope_type == "rope"_w)),
      error("MLA-PLAIN", "multi_latent_attention rotary_interleaved attention_output_gate",
            "MLA excludes interleaved rotary embeddings and an output gate", "turn them off",
            kTransformerConfig,
            WHEN(c.multi_latent_attention && (c.rotary_interleaved || c.attention_output_gate))),
      error("ROPE-TYPE", "rope_type multi_latent_attention",
            "a rope_type other than rope needs MLA", "leave rope_type out",
            "megatron/training/argument_utils.py core_transformer_config_from_args",
            WHEN(c.rope_type && c.rope_type != "rope"_w && !c.multi_latent_attention))
          .by(kLM),
      error("MTP-POSITIONS", "mtp_num_layers position_embedding_type",
            "MTP needs rope or no position embedding", "use rope", kArguments,
            WHEN(c.mtp_num_layers.value_or(0) > 0 && c.position_embedding_type != "rope"_w &&
                 c.position_embedding_type != "none"_w))
          .by(kLM),
      error("MTP-HSM", "mtp_hsm mtp_num_layers", "mtp_hsm needs at least two MTP layers",
            "turn mtp_hsm off", kTransformerConfig,
            WHEN(c.mtp_hsm && c.mtp_num_layers.value_or(0) < 2)),
      error("HYPER-CONNECTIONS",
            "enable_hyper_connections recompute_granularity pipeline_model_parallel_size "
            "mtp_num_layers fp32_residual_connection",
            "hyper connections exclude full recompute, PP > 1, MTP and an fp32 residual",
            "drop what they exclude", kTransformerConfig,
            WHEN(c.enable_hyper_connections && !at.run_file &&
                 (full_recompute(in) || c.pipeline_model_parallel_size > 1 ||
                  c.mtp_num_layers.value_or(0) > 0 || c.fp32_residual_connection))),
  };
}

}  // namespace

std::vector<Rule> attention_rules() { return join({context_rows, position_rows}); }

}  // namespace moecast::rules
