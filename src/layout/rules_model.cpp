/// Rules of the model's shape against TP, CP, EP and ETP.
#include <algorithm>

#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kAttention = "megatron/core/transformer/attention.py";
constexpr std::string_view kDivide = "megatron/core/utils.py divide";

template <typename Bad>
bool any_mixer(In in, Bad bad) {
  return std::any_of(in.model.mixers.begin(), in.model.mixers.end(), bad);
}
bool has_heads(const Mixer& m) {
  return m.kind == MixerKind::gqa || m.kind == MixerKind::mla || m.kind == MixerKind::csa;
}
bool heads_broken(In in) {
  const int tp = in.layout.tp;
  return tp > 1 && any_mixer(in, [tp](const Mixer& m) {
           return has_heads(m) && m.num_attention_heads % tp != 0;
         });
}
bool query_groups_broken(In in) {
  const int tp = in.layout.tp;
  return tp > 1 && any_mixer(in, [tp](const Mixer& m) {
           const int groups = m.num_query_groups;
           return m.kind == MixerKind::gqa && groups > 0 && groups % tp != 0 && tp % groups != 0;
         });
}
bool gdn_broken(In in) {
  const int split = in.layout.tp * in.layout.cp;
  return any_mixer(in, [split](const Mixer& m) {
    return m.kind == MixerKind::gdn && m.linear_num_key_heads > 0 &&
           (m.linear_num_value_heads % m.linear_num_key_heads != 0 ||
            m.linear_num_value_heads % split != 0 || m.linear_num_key_heads % split != 0);
  });
}
bool mamba_broken(In in) {
  const int tp = in.layout.tp;
  return tp > 1 && any_mixer(in, [tp](const Mixer& m) {
           return m.kind == MixerKind::mamba &&
                  (m.mamba_num_heads % tp != 0 || m.mamba_num_groups % tp != 0);
         });
}
/// Ulysses: every CP rank takes heads / TP / CP of the heads; one KV head per TP rank where there
/// are fewer groups than TP.
bool a2a_broken(In in) {
  const int tp = in.layout.tp;
  const int cp = in.layout.cp;
  if (cp == 1 || in.layout.cp_comm_type != CpCommType::a2a) return false;
  return any_mixer(in, [tp, cp](const Mixer& m) {
    if (!has_heads(m)) return false;
    const int kv = m.kind == MixerKind::gqa ? std::max(1, m.num_query_groups / tp) : cp;
    return m.num_attention_heads / tp % cp != 0 || kv % cp != 0;
  });
}
bool router_groups_broken(In in) {
  const MoeSpec& m = in.model.moe;
  return moe(in) && m.moe_router_group_topk > 0 &&
         (m.moe_router_num_groups < 1 || m.num_moe_experts % m.moe_router_num_groups != 0 ||
          m.moe_router_group_topk > m.moe_router_num_groups);
}
std::string tp_text(In in, std::string_view what) {
  return fmt::format("{} of {} do not divide by TP {}", what, in.model.name, in.layout.tp);
}

std::vector<Rule> expert_rows() {
  return {
      error(
          "EP-NEEDS-EXPERTS", {"layout.ep", "model"}, "EP > 1 needs a model with experts",
          "set EP to 1", kTransformerConfig, [](In in) { return in.layout.ep > 1 && !moe(in); },
          [](In in) {
            return fmt::format("EP {} but {} has no experts", in.layout.ep, in.model.name);
          }),
      error(
          "EXPERTS-DIVIDE-EP", {"layout.ep", "model"}, "number of experts is a multiple of EP",
          "choose an EP that divides the expert count", kMoeLayer,
          [](In in) { return moe(in) && in.model.moe.num_moe_experts % in.layout.ep != 0; },
          [](In in) {
            return fmt::format("{} experts do not divide by EP {}", in.model.moe.num_moe_experts,
                               in.layout.ep);
          }),
      error("ROUTER-GROUPS", {"model"},
            "group-limited routing: groups divide the experts and group top-k <= groups",
            "correct moe_router_num_groups and moe_router_group_topk", kTransformerConfig,
            router_groups_broken,
            [](In in) {
              return fmt::format("{} experts in {} groups with group top-k {}",
                                 in.model.moe.num_moe_experts, in.model.moe.moe_router_num_groups,
                                 in.model.moe.moe_router_group_topk);
            }),
      runtime_error(
          "ROUTER-TOPK", {"model"}, "top-k <= experts", "lower moe_router_topk",
          "megatron/core/transformer/moe/moe_utils.py",
          [](In in) {
            return moe(in) && in.model.moe.moe_router_topk > in.model.moe.num_moe_experts;
          },
          [](In in) {
            return fmt::format("top-k {} of {} experts", in.model.moe.moe_router_topk,
                               in.model.moe.num_moe_experts);
          }),
      runtime_error(
          "EXPERT-FFN-ETP", {"layout.etp", "model"}, "expert FFN width is a multiple of ETP",
          "choose an ETP that divides moe_ffn_hidden_size", kDivide,
          [](In in) { return moe(in) && in.model.moe.moe_ffn_hidden_size % in.layout.etp != 0; },
          [](In in) {
            return fmt::format("expert FFN width {} does not divide by ETP {}",
                               in.model.moe.moe_ffn_hidden_size, in.layout.etp);
          }),
      runtime_error(
          "SHARED-FFN-TP", {"layout.tp", "model"}, "shared-expert width is a multiple of TP",
          "choose a TP that divides it", kDivide,
          [](In in) {
            return in.model.moe.moe_shared_expert_intermediate_size % in.layout.tp != 0;
          },
          [](In in) {
            return fmt::format("shared-expert width {} does not divide by TP {}",
                               in.model.moe.moe_shared_expert_intermediate_size, in.layout.tp);
          }),
  };
}

std::vector<Rule> tensor_rows() {
  return {
      error("HEADS-TP", {"layout.tp", "model"}, "attention heads are a multiple of TP",
            "choose a TP that divides the heads", kTransformerConfig, heads_broken,
            [](In in) { return tp_text(in, "attention heads"); }),
      error("KV-HEADS-TP", {"layout.tp", "model"},
            "query groups mod TP = 0 or TP mod query groups = 0",
            "choose a TP that divides the query groups, or a multiple of them", kAttention,
            query_groups_broken, [](In in) { return tp_text(in, "query groups"); }),
      error("GDN-HEADS", {"layout.tp", "layout.cp", "model"},
            "gated delta net: value heads mod key heads = 0, both mod (TP * CP) = 0",
            "choose TP * CP that divides the linear-attention heads", kTransformerConfig,
            gdn_broken,
            [](In in) {
              return fmt::format("gated-delta-net heads do not divide by TP*CP = {}",
                                 in.layout.tp * in.layout.cp);
            }),
      error("MAMBA-HEADS-TP", {"layout.tp", "model"}, "Mamba heads and groups are multiples of TP",
            "choose a TP that divides them", "megatron/core/ssm/mamba_mixer.py", mamba_broken,
            [](In in) { return tp_text(in, "Mamba heads or groups"); }),
      runtime_error(
          "DENSE-FFN-TP", {"layout.tp", "model"}, "dense FFN width is a multiple of TP",
          "choose a TP that divides ffn_hidden_size", kDivide,
          [](In in) {
            return in.model.ffn_hidden_size % in.layout.tp != 0 && has_ffn(in, FfnKind::dense);
          },
          [](In in) {
            return fmt::format("dense FFN width {} does not divide by TP {}",
                               in.model.ffn_hidden_size, in.layout.tp);
          }),
      runtime_error(
          "MOE-TP-NEEDS-SP", {"layout.sequence_parallel", "layout.tp"},
          "MoE with TP > 1 needs sequence parallel", "set layout.sequence_parallel to true or auto",
          kMoeLayer, [](In in) { return moe(in) && in.layout.tp > 1 && !in.layout.sp(); },
          [](In in) {
            return fmt::format(
                "TP {} without sequence parallel: the MoE layer refuses its first forward",
                in.layout.tp);
          }),
      runtime_error(
          "SP-SEQUENCE", {"layout.tp", "layout.cp", "train.seq_length"},
          "sequence parallel: sequence mod (TP * CP) = 0", "choose a sequence that TP * CP divides",
          "megatron/core/tensor_parallel/mappings.py",
          [](In in) {
            return in.layout.tp > 1 && in.layout.sp() &&
                   in.seq_length % (static_cast<long>(in.layout.tp) * in.layout.cp) != 0;
          },
          [](In in) {
            return fmt::format("sequence {} does not divide by TP*CP = {}", in.seq_length,
                               in.layout.tp * in.layout.cp);
          }),
  };
}

std::vector<Rule> context_rows() {
  return {
      error(
          "CP-SEQUENCE", {"layout.cp", "train.seq_length"},
          "CP > 1: sequence mod (2 * CP) = 0 (load-balanced causal halves)",
          "choose a sequence that 2 * CP divides", kBridgeConfig,
          [](In in) { return in.layout.cp > 1 && in.seq_length % (2L * in.layout.cp) != 0; },
          [](In in) {
            return fmt::format("sequence {} does not divide by 2*CP = {}", in.seq_length,
                               2L * in.layout.cp);
          }),
      runtime_error(
          "CP-A2A-HEADS", {"layout.cp", "comm.cp_comm_type", "layout.tp"},
          "a2a context parallel splits heads: heads / TP and KV heads / TP are multiples of CP",
          "use comm.cp_comm_type p2p, or a smaller CP",
          "TransformerEngine attention (context parallel a2a)", a2a_broken,
          [](In in) {
            return fmt::format("heads per TP rank do not divide by CP {} with cp_comm_type a2a",
                               in.layout.cp);
          }),
      error(
          "CP-DSA", {"layout.cp", "comm.cp_comm_type"},
          "DSA attention with CP > 1 needs cp_comm_type all_gather",
          "set comm.cp_comm_type to all_gather", kTransformerConfig,
          [](In in) {
            return in.layout.cp > 1 && in.layout.cp_comm_type != CpCommType::all_gather &&
                   any_mixer(in, [](const Mixer& m) {
                     return m.kind == MixerKind::mla && m.index_n_heads > 0;
                   });
          },
          [](In in) {
            return fmt::format("DSA attention with CP {} without all_gather", in.layout.cp);
          }),
      warning(
          "CP-HIERARCHY", {"comm.cp_comm_type"},
          "a2a+p2p needs hierarchical_context_parallel_sizes whose product is CP (also at CP 1)",
          "state hierarchical_context_parallel_sizes in the recipe; moecast has no knob for it",
          kBridgeConfig, [](In in) { return in.layout.cp_comm_type == CpCommType::a2a_p2p; },
          [](In in) {
            return fmt::format(
                "cp_comm_type a2a+p2p with CP {}: the recipe must state "
                "hierarchical_context_parallel_sizes",
                in.layout.cp);
          }),
  };
}

}  // namespace

std::vector<Rule> model_rules() { return join({expert_rows, tensor_rows, context_rows}); }

}  // namespace moecast::rules
