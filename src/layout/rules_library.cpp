/// What the DeepEP and HybridEP libraries want at run time.
#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kDeepEp = "DeepEP deep_ep/buffers/legacy.py, csrc/legacy/config.hpp";
constexpr std::string_view kHybridEp =
    "DeepEP (hybrid-ep) csrc/hybrid_ep/config.cuh, deep_ep/hybrid_ep_buffer.py";
/// 3 * tokens + 1 entries of a send queue of 65536.
constexpr long kHybridEpTokens = 21844;

bool on_deepep(In in) { return moe(in) && deepep(in); }
bool on_hybridep(In in) { return moe(in) && hybridep(in); }

/// GPUs that the job takes of each NVLink domain: stated, else all where they fit or divide, else
/// the largest power of two that does.
int used_per_domain(In in) {
  const int domain = std::max(1, in.at.gpus_per_nvlink_domain);
  const int gpus = in.c.world_size;
  if (in.at.gpus_used_per_domain > 0) return in.at.gpus_used_per_domain;
  if (gpus <= domain || gpus % domain == 0) return domain;
  int power = 1;
  while (power * 2 < domain) power *= 2;
  while (power > 1 && gpus % power != 0) power /= 2;
  return power > 1 ? power : domain;
}
/// Ranks of an EP group that share an NVLink domain, as Bridge's harness sets it unless the
/// environment does.
long domain(In in) {
  return in.at.hybridep_domain > 0 ? in.at.hybridep_domain
                                   : std::min<long>(ep_group(in), used_per_domain(in));
}
long width(In in) { return in.c.moe_latent_size.value_or(in.c.hidden_size); }
long tokens_per_rank(In in) {
  const long split = static_cast<long>(in.c.context_parallel_size) *
                     (in.c.sequence_parallel ? in.c.tensor_model_parallel_size : 1);
  return static_cast<long>(in.c.micro_batch_size) * in.c.seq_length / split;
}
bool deepep_group_supported(long n) {
  for (long size : {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160}) {
    if (n == size) return true;
  }
  return false;
}

}  // namespace

std::vector<Rule> library_rules() {
  return {
      error("DEEPEP-GROUP-SIZE", READS_DISPATCHER " " READS_EP_GROUP,
            "DeepEP group size is one of 2 4 8 16 24 32 48 64 96 128 144 160",
            "choose one of these sizes, or hybridep", kDeepEp,
            WHEN(on_deepep(in) && !deepep_group_supported(ep_group(in))))
          .at(Phase::runtime)
          .logs("Unsupported number of EP ranks")
          .says([](In in) {
            return fmt::format("DeepEP has no configuration for {} ranks", ep_group(in));
          }),
      error("DEEPEP-SMS", READS_DISPATCHER " moe_flex_dispatcher_num_sms moe_deepep_num_sms",
            "DeepEP uses an even number of SMs", "choose an even moe.dispatcher_num_sms", kDeepEp,
            WHEN(on_deepep(in) && c.moe_flex_dispatcher_num_sms.value_or(0) % 2 != 0))
          .at(Phase::runtime)
          .logs("The SM count must be even")
          .says([](In in) {
            return fmt::format("DeepEP with {} SMs", in.c.moe_flex_dispatcher_num_sms.value_or(0));
          }),
      error("DEEPEP-GRAPH", READS_DISPATCHER " " READS_GRAPH,
            "DeepEP's dispatch waits on the CPU and cannot be captured in a CUDA graph",
            "capture attn and moe_router only, or use hybridep",
            "megatron/core/transformer/moe/fused_a2a.py",
            WHEN(on_deepep(in) &&
                 (full_iteration(in) || whole_layer_graph(in) || graphed(in, "moe"_w))))
          .at(Phase::runtime)
          .says([](In) {
            return std::string("the captured part of the layer includes DeepEP's dispatch");
          }),
      error("HYBRIDEP-DOMAIN",
            READS_DISPATCHER " " READS_EP_GROUP " env.NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN",
            "HybridEP: ETP * EP is a multiple of the ranks per NVLink domain, at most 72 of them",
            "choose an EP that fits the domain, or state NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN",
            kHybridEp, WHEN(on_hybridep(in) && (ep_group(in) % domain(in) != 0 || domain(in) > 72)))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("{} ranks do not divide into NVLink domains of {}", ep_group(in),
                               domain(in));
          }),
      error("HYBRIDEP-HIDDEN", READS_DISPATCHER " hidden_size moe_latent_size",
            "HybridEP: dispatched width mod 16 = 0", "use alltoall", kHybridEp,
            WHEN(on_hybridep(in) && width(in) % 16 != 0))
          .at(Phase::runtime)
          .says([](In in) { return fmt::format("HybridEP with width {}", width(in)); }),
      error("HYBRIDEP-EXPERTS", READS_DISPATCHER " expert_model_parallel_size num_experts",
            "HybridEP: experts per rank * ranks per NVLink domain is a multiple of 4",
            "choose another EP", kHybridEp,
            WHEN(on_hybridep(in) &&
                 *c.num_experts / c.expert_model_parallel_size * domain(in) % 4 != 0))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("{} experts per rank on {} ranks per domain",
                               *in.c.num_experts / in.c.expert_model_parallel_size, domain(in));
          }),
      error("HYBRIDEP-TOKENS",
            READS_DISPATCHER
            " micro_batch_size seq_length context_parallel_size tensor_model_parallel_size "
            "sequence_parallel",
            "HybridEP across NVLink domains: at most 21844 tokens per rank",
            "lower the micro batch, or raise CP or TP", kHybridEp,
            WHEN(on_hybridep(in) && ep_group(in) > domain(in) &&
                 tokens_per_rank(in) > kHybridEpTokens))
          .at(Phase::runtime)
          .says([](In in) {
            return fmt::format("{} tokens per rank overflow HybridEP's send queue",
                               tokens_per_rank(in));
          }),
  };
}

}  // namespace moecast::rules
