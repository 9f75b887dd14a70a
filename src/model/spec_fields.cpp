#include "model/spec_fields.hpp"

#include <algorithm>
#include <cstdint>

namespace moecast {
namespace {

using enum MixerKind;
constexpr std::uint32_t kAttention = bit(gqa) | bit(mla) | bit(csa);
constexpr std::uint32_t kLinear = bit(gdn) | bit(kda);
constexpr std::uint32_t kAlways = ~0u;

constexpr SpecField<ModelSpec> kModelFields[] = {
    {"hidden_size", "hidden_size", &ModelSpec::hidden_size, nullptr, kAlways},
    {"ffn_hidden_size", "intermediate_size", &ModelSpec::ffn_hidden_size},
    {"vocab_size", "vocab_size", &ModelSpec::vocab_size, nullptr, kAlways},
    {"make_vocab_size_divisible_by", "", &ModelSpec::make_vocab_size_divisible_by, nullptr,
     kAlways},
    {"gated_linear_unit", "", nullptr, &ModelSpec::gated_linear_unit},
    {"untie_embeddings_and_output_weights", "", nullptr,
     &ModelSpec::untie_embeddings_and_output_weights},
    {"add_bias_linear", "", nullptr, &ModelSpec::add_bias_linear},
    {"layernorm", "", nullptr, &ModelSpec::layernorm},
    {"hybrid", "", nullptr, &ModelSpec::hybrid},
    {"hyper_connections", "hc_mult", &ModelSpec::hyper_connections},
    {"mtp_num_layers", "num_nextn_predict_layers", &ModelSpec::mtp_num_layers},
    {"mtp_use_repeated_layer", "", nullptr, &ModelSpec::mtp_use_repeated_layer},
};

constexpr SpecField<MoeSpec> kMoeFields[] = {
    {"num_moe_experts", "n_routed_experts", &MoeSpec::num_moe_experts, nullptr, kAlways},
    {"moe_router_topk", "num_experts_per_tok", &MoeSpec::moe_router_topk, nullptr, kAlways},
    {"moe_ffn_hidden_size", "moe_intermediate_size", &MoeSpec::moe_ffn_hidden_size, nullptr,
     kAlways},
    {"moe_shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
     &MoeSpec::moe_shared_expert_intermediate_size},
    {"moe_shared_expert_gate", "", nullptr, &MoeSpec::moe_shared_expert_gate},
    {"moe_latent_size", "moe_latent_size", &MoeSpec::moe_latent_size},
    {"moe_router_num_groups", "n_group", &MoeSpec::moe_router_num_groups},
    {"moe_router_group_topk", "topk_group", &MoeSpec::moe_router_group_topk},
    {"sigmoid_router", "", nullptr, &MoeSpec::sigmoid_router},
    {"expert_bias", "", nullptr, &MoeSpec::expert_bias},
    {"add_bias", "", nullptr, &MoeSpec::add_bias},
};

constexpr SpecField<Mixer> kMixerFields[] = {
    {"num_attention_heads", "num_attention_heads", &Mixer::num_attention_heads, nullptr,
     kAttention},
    {"num_query_groups", "num_key_value_heads", &Mixer::num_query_groups, nullptr, kAttention},
    {"qk_head_dim", "head_dim", &Mixer::qk_head_dim, nullptr, kAttention},
    {"v_head_dim", "v_head_dim", &Mixer::v_head_dim, nullptr, kAttention},
    {"window", "sliding_window", &Mixer::window, nullptr, bit(csa)},
    {"qk_layernorm", "", nullptr, &Mixer::qk_layernorm},
    {"attention_output_gate", "", nullptr, &Mixer::attention_output_gate},
    {"add_qkv_bias", "", nullptr, &Mixer::add_qkv_bias},
    {"sinks", "", nullptr, &Mixer::sinks},
    {"k_equals_v", "", nullptr, &Mixer::k_equals_v},
    {"q_lora_rank", "q_lora_rank", &Mixer::q_lora_rank, nullptr, bit(csa)},
    {"kv_lora_rank", "kv_lora_rank", &Mixer::kv_lora_rank, nullptr, bit(mla)},
    {"qk_pos_emb_head_dim", "qk_rope_head_dim", &Mixer::qk_pos_emb_head_dim, nullptr, bit(mla)},
    {"o_lora_rank", "o_lora_rank", &Mixer::o_lora_rank, nullptr, bit(csa)},
    {"o_groups", "o_groups", &Mixer::o_groups, nullptr, bit(csa)},
    {"compress_ratio", "", &Mixer::compress_ratio},
    {"index_n_heads", "index_n_heads", &Mixer::index_n_heads},
    {"index_head_dim", "index_head_dim", &Mixer::index_head_dim},
    {"index_topk", "index_topk", &Mixer::index_topk},
    {"index_trained", "", nullptr, &Mixer::index_trained},
    {"index_fresh", "", nullptr, &Mixer::index_fresh},
    {"linear_num_key_heads", "linear_num_key_heads", &Mixer::linear_num_key_heads, nullptr,
     kLinear},
    {"linear_num_value_heads", "linear_num_value_heads", &Mixer::linear_num_value_heads, nullptr,
     kLinear},
    {"linear_key_head_dim", "linear_key_head_dim", &Mixer::linear_key_head_dim, nullptr, kLinear},
    {"linear_value_head_dim", "linear_value_head_dim", &Mixer::linear_value_head_dim, nullptr,
     kLinear},
    {"linear_conv_kernel_dim", "linear_conv_kernel_dim", &Mixer::linear_conv_kernel_dim, nullptr,
     kLinear},
    {"mamba_num_heads", "mamba_num_heads", &Mixer::mamba_num_heads, nullptr, bit(mamba)},
    {"mamba_head_dim", "mamba_head_dim", &Mixer::mamba_head_dim, nullptr, bit(mamba)},
    {"mamba_state_dim", "ssm_state_size", &Mixer::mamba_state_dim, nullptr, bit(mamba)},
    {"mamba_num_groups", "n_groups", &Mixer::mamba_num_groups, nullptr, bit(mamba)},
    {"mamba_conv_kernel", "conv_kernel", &Mixer::mamba_conv_kernel},
};

/// Required numbers are positive, none is negative.
template <typename T>
void check_range(std::span<const SpecField<T>> fields, const T& value, std::uint32_t kind,
                 std::vector<SpecProblem>& out) {
  for (const SpecField<T>& f : fields) {
    if (f.number == nullptr) continue;
    const int number = value.*f.number;
    const int least = (f.required & kind) != 0 ? 1 : 0;
    if (number < least) out.push_back({f.hf, f.key, "must be at least " + std::to_string(least)});
  }
}

void check_divides(int divisor, int total, std::string_view hf, std::string_view key,
                   std::string_view of, std::vector<SpecProblem>& out) {
  if (divisor <= 0 || total % divisor == 0) return;
  out.push_back({hf, key,
                 std::to_string(divisor) + " does not divide " + std::string(of) + " (" +
                     std::to_string(total) + ")"});
}

void check_mixer(const Mixer& x, std::vector<SpecProblem>& out) {
  if (x.kind == none) return;
  check_range(mixer_fields(), x, bit(x.kind), out);
  check_divides(x.num_query_groups, x.num_attention_heads, "num_key_value_heads",
                "num_query_groups", "num_attention_heads", out);
  check_divides(x.linear_num_key_heads, x.linear_num_value_heads, "linear_num_key_heads",
                "linear_num_key_heads", "linear_num_value_heads", out);
  check_divides(x.mamba_num_groups, x.mamba_num_heads, "n_groups", "mamba_num_groups",
                "mamba_num_heads", out);
  check_divides(x.o_groups, x.num_attention_heads, "o_groups", "o_groups", "num_attention_heads",
                out);
  if (x.index_topk > 0 && (x.index_n_heads == 0 || x.index_head_dim == 0)) {
    out.push_back({"index_topk", "index_topk", "needs index_n_heads and index_head_dim"});
  }
}

void check_moe(const MoeSpec& moe, std::vector<SpecProblem>& out) {
  check_range(moe_fields(), moe, kAlways, out);
  if (moe.moe_router_topk > moe.num_moe_experts) {
    out.push_back({"num_experts_per_tok", "moe_router_topk",
                   std::to_string(moe.moe_router_topk) + " is more than the " +
                       std::to_string(moe.num_moe_experts) + " experts"});
  }
  const int groups = moe.moe_router_num_groups;
  check_divides(groups, moe.num_moe_experts, "n_group", "moe_router_num_groups",
                "the number of experts", out);
  if (moe.moe_router_group_topk > groups) {
    out.push_back({"topk_group", "moe_router_group_topk", "is more than the number of groups"});
  }
}

}  // namespace

std::span<const SpecField<ModelSpec>> model_fields() { return kModelFields; }
std::span<const SpecField<MoeSpec>> moe_fields() { return kMoeFields; }
std::span<const SpecField<Mixer>> mixer_fields() { return kMixerFields; }

std::string_view mixer_kind_name(MixerKind kind) {
  constexpr std::string_view kNames[] = {"none", "gqa", "mla", "csa", "gdn", "kda", "mamba"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<SpecProblem> check_spec(const ModelSpec& m) {
  std::vector<SpecProblem> out;
  check_range(model_fields(), m, kAlways, out);
  for (const Mixer& mixer : m.mixers) check_mixer(mixer, out);
  const auto uses = [&](FfnKind kind) {
    const auto is = [&](const LayerKind& l) { return l.ffn == kind; };
    return std::any_of(m.layers.begin(), m.layers.end(), is) ||
           std::any_of(m.mtp_pattern.begin(), m.mtp_pattern.end(), is);
  };
  if (uses(FfnKind::moe) || m.moe.num_moe_experts > 0) check_moe(m.moe, out);
  if (uses(FfnKind::dense) && m.ffn_hidden_size < 1) {
    out.push_back({"intermediate_size", "ffn_hidden_size", "is missing: there are dense layers"});
  }
  return out;
}

}  // namespace moecast
