/// Rules of the token dispatchers: DeepEP, HybridEP, shared-expert overlap, paged stash, router
/// padding.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast::rules {
namespace {

constexpr std::string_view kDeepEp = "DeepEP deep_ep/buffers/legacy.py, csrc/legacy/config.hpp";
constexpr std::string_view kHybridEp =
    "DeepEP (hybrid-ep) csrc/hybrid_ep/config.cuh, deep_ep/hybrid_ep_buffer.py";
constexpr std::string_view kDomainVariable = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN";
/// 3 * tokens + 1 entries of a send queue of 65536.
constexpr long kHybridEpTokens = 21844;

bool deepep(In in) { return moe(in) && in.layout.dispatcher == Dispatcher::deepep; }
bool hybridep(In in) { return moe(in) && in.layout.dispatcher == Dispatcher::hybridep; }

/// GPUs that the job takes of each NVLink domain: stated, else all where they fit or divide, else
/// the largest power of two that does.
int used_per_domain(In in) {
  const int domain = std::max(1, in.system.gpus_per_nvlink_domain);
  if (in.run.gpus_used_per_domain > 0) return in.run.gpus_used_per_domain;
  if (in.gpus <= domain || in.gpus % domain == 0) return domain;
  int power = 1;
  while (power * 2 < domain) power *= 2;
  while (power > 1 && in.gpus % power != 0) power /= 2;
  return power > 1 ? power : domain;
}

/// Ranks of an EP group that share an NVLink domain, as Bridge's harness sets it unless the
/// environment does.
long hybridep_domain(In in) {
  const std::string_view text = env(in, kDomainVariable);
  int stated = 0;
  std::from_chars(text.data(), text.data() + text.size(), stated);
  return stated > 0 ? stated : std::min<long>(ep_group(in), used_per_domain(in));
}
bool hybridep_spans_domains(In in) { return ep_group(in) > hybridep_domain(in); }
long hybridep_width(In in) {
  const int latent = in.model.moe.moe_latent_size;
  return latent > 0 ? latent : in.model.hidden_size;
}
long tokens_per_rank(In in) {
  const long split = static_cast<long>(in.layout.cp) * (in.layout.sp() ? in.layout.tp : 1);
  return static_cast<long>(in.layout.micro_batch_size) * in.seq_length / split;
}
bool deepep_group_supported(long n) {
  for (long size : {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160}) {
    if (n == size) return true;
  }
  return false;
}

std::vector<Rule> deepep_rows() {
  return {
      error(
          "DEEPEP-GPU", {"moe.dispatcher", "cluster.system"},
          "DeepEP needs Ampere, Hopper, B200 or B300 (not GB200 or GB300)",
          "use hybridep or alltoall", kFlexBackend,
          [](In in) {
            const int major = compute_major(in);
            return deepep(in) && (major < 8 || major > 10 || (major == 10 && in.system.grace));
          },
          [](In in) { return fmt::format("DeepEP does not run on {}", in.system.gpu.name); },
          kBridge),
      error(
          "DEEPEP-GROUP", {"moe.dispatcher", "layout.ep", "layout.etp"},
          "DeepEP needs ETP * EP > 1", "use alltoall", kTokenDispatcher,
          [](In in) { return deepep(in) && ep_group(in) == 1; },
          [](In) { return std::string("DeepEP with ETP*EP = 1"); }),
      runtime_error(
          "DEEPEP-GROUP-SIZE", {"moe.dispatcher", "layout.ep", "layout.etp"},
          "DeepEP group size is one of 2 4 8 16 24 32 48 64 96 128 144 160",
          "choose one of these sizes, or hybridep", kDeepEp,
          [](In in) { return deepep(in) && !deepep_group_supported(ep_group(in)); },
          [](In in) {
            return fmt::format("DeepEP has no configuration for {} ranks", ep_group(in));
          }),
      runtime_error(
          "DEEPEP-SMS", {"moe.dispatcher", "moe.dispatcher_num_sms"},
          "DeepEP uses an even number of SMs", "choose an even moe.dispatcher_num_sms", kDeepEp,
          [](In in) { return deepep(in) && in.layout.dispatcher_num_sms % 2 != 0; },
          [](In in) { return fmt::format("DeepEP with {} SMs", in.layout.dispatcher_num_sms); }),
      error(
          "DEEPEP-CAPACITY", {"moe.dispatcher", "moe.capacity_factor"},
          "DeepEP excludes padding to an expert capacity",
          "drop the capacity factor, or use alltoall", kTransformerConfig,
          [](In in) { return deepep(in) && drop_and_pad(in); },
          [](In in) {
            return fmt::format("DeepEP with capacity factor {}", in.run.capacity_factor);
          }),
      runtime_error(
          "DEEPEP-GRAPH", {"moe.dispatcher", "cuda_graph.impl", "cuda_graph.scope"},
          "DeepEP's dispatch waits on the CPU and cannot be captured in a CUDA graph",
          "capture attn and moe_router only, or use hybridep",
          "megatron/core/transformer/moe/fused_a2a.py",
          [](In in) {
            return deepep(in) &&
                   (full_iteration(in) || whole_layer_graph(in) || graphed(in, GraphModule::moe));
          },
          [](In) {
            return std::string("the captured part of the layer includes DeepEP's dispatch");
          }),
  };
}

std::vector<Rule> hybridep_rows() {
  return {
      error(
          "HYBRIDEP-GPU", {"moe.dispatcher", "cluster.system"},
          "HybridEP needs compute capability 8, 9 or 10", "use alltoall", kFlexBackend,
          [](In in) { return hybridep(in) && (compute_major(in) < 8 || compute_major(in) > 10); },
          [](In in) { return fmt::format("HybridEP does not run on {}", in.system.gpu.name); },
          kBridge),
      runtime_error(
          "HYBRIDEP-DOMAIN", {"moe.dispatcher", "layout.ep", "layout.etp", "software.env"},
          "HybridEP: ETP * EP is a multiple of the ranks per NVLink domain, at most 72 of them",
          "choose an EP that fits the domain, or state NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN",
          kHybridEp,
          [](In in) {
            return hybridep(in) &&
                   (ep_group(in) % hybridep_domain(in) != 0 || hybridep_domain(in) > 72);
          },
          [](In in) {
            return fmt::format("{} ranks do not divide into NVLink domains of {}", ep_group(in),
                               hybridep_domain(in));
          }),
      runtime_error(
          "HYBRIDEP-HIDDEN", {"moe.dispatcher", "model"}, "HybridEP: dispatched width mod 16 = 0",
          "use alltoall", kHybridEp,
          [](In in) { return hybridep(in) && hybridep_width(in) % 16 != 0; },
          [](In in) { return fmt::format("HybridEP with width {}", hybridep_width(in)); }),
      runtime_error(
          "HYBRIDEP-EXPERTS", {"moe.dispatcher", "layout.ep", "model"},
          "HybridEP: experts per rank * ranks per NVLink domain is a multiple of 4",
          "choose another EP", kHybridEp,
          [](In in) {
            return hybridep(in) &&
                   in.model.moe.num_moe_experts / in.layout.ep * hybridep_domain(in) % 4 != 0;
          },
          [](In in) {
            return fmt::format("{} experts per rank on {} ranks per domain",
                               in.model.moe.num_moe_experts / in.layout.ep, hybridep_domain(in));
          }),
      runtime_error(
          "HYBRIDEP-TOKENS",
          {"moe.dispatcher", "train.micro_batch_size", "train.seq_length", "layout.cp"},
          "HybridEP across NVLink domains: at most 21844 tokens per rank",
          "lower the micro batch, or raise CP or TP", kHybridEp,
          [](In in) {
            return hybridep(in) && hybridep_spans_domains(in) &&
                   tokens_per_rank(in) > kHybridEpTokens;
          },
          [](In in) {
            return fmt::format("{} tokens per rank overflow HybridEP's send queue",
                               tokens_per_rank(in));
          }),
  };
}

std::vector<Rule> shared_expert_rows() {
  constexpr std::string_view kShared = "moe.moe_shared_expert_overlap";
  return {
      error(
          "SHARED-OVERLAP-DISPATCHER", {kShared, "moe.dispatcher"},
          "shared-expert overlap needs dispatcher alltoall, deepep or hybridep",
          "choose one of them or turn the overlap off", kTransformerConfig,
          [](In in) {
            return in.layout.moe_shared_expert_overlap && shared_experts(in) &&
                   in.layout.dispatcher == Dispatcher::allgather;
          },
          [](In) { return std::string("shared-expert overlap with the allgather dispatcher"); }),
      error(
          "SHARED-OVERLAP-LATENT", {kShared, "model"},
          "shared-expert overlap excludes latent MoE in training", "turn the overlap off",
          kMoeLayer,
          [](In in) {
            return in.layout.moe_shared_expert_overlap && shared_experts(in) &&
                   in.model.moe.moe_latent_size > 0;
          },
          [](In) { return std::string("shared-expert overlap with latent MoE"); }),
      warning(
          "SHARED-OVERLAP-FLEX", {kShared, "moe.dispatcher"},
          "Bridge's apply_flex_dispatcher_backend turns moe_shared_expert_overlap off",
          "set moe_shared_expert_overlap after the helper, or leave it off", kFlexBackend,
          [](In in) { return in.layout.moe_shared_expert_overlap && moe(in) && flex(in); },
          [](In in) {
            return fmt::format("shared-expert overlap with {}", to_string(in.layout.dispatcher));
          },
          kBridge),
  };
}

std::vector<Rule> padding_and_stash_rows() {
  return {
      error(
          "ROUTER-PADDING-PRECISION", {"software.features", "precision"},
          "moe_router_padding_for_quantization needs FP8 or FP4", "turn the feature off",
          kTransformerConfig,
          [](In in) {
            return !quantized(in) && feature(in, "moe_router_padding_for_quantization");
          },
          [](In) { return std::string("router padding for quantisation in bf16"); }),
      error(
          "ROUTER-PADDING-ALLGATHER", {"software.features", "moe.dispatcher"},
          "moe_router_padding_for_quantization excludes the allgather dispatcher", "use alltoall",
          kTransformerConfig,
          [](In in) {
            return in.layout.dispatcher == Dispatcher::allgather &&
                   feature(in, "moe_router_padding_for_quantization");
          },
          [](In) { return std::string("router padding for quantisation with allgather"); }),
      error(
          "PAGED-STASH-DISPATCHER", {"software.features", "moe.dispatcher"},
          "paged_stash (rank capacity) needs hybridep", "use hybridep", kTransformerConfig,
          [](In in) {
            return in.layout.dispatcher != Dispatcher::hybridep && moe(in) &&
                   feature(in, "paged_stash");
          },
          [](In in) {
            return fmt::format("paged stash with dispatcher {}", to_string(in.layout.dispatcher));
          }),
      error(
          "PAGED-STASH-FUSER", {"software.features"},
          "paged_stash with hybridep needs fused_grouped_mlp or moe_use_grouped_tensor",
          "turn software.features.fused_grouped_mlp on", kTransformerConfig,
          [](In in) {
            return hybridep(in) && feature(in, "paged_stash") &&
                   !feature(in, "fused_grouped_mlp") && !feature(in, "moe_use_grouped_tensor");
          },
          [](In) { return std::string("paged stash without the fused grouped MLP"); }),
      error(
          "PAGED-STASH-OFFLOAD", {"software.features", "offload.activation_modules"},
          "paged_stash excludes layer offload and offload of the experts' modules",
          "offload attention modules only", kTransformerConfig,
          [](In in) {
            return (in.layout.cpu_offloading_num_layers > 0 || offloads_expert_modules(in)) &&
                   feature(in, "paged_stash");
          },
          [](In) {
            return std::string("paged stash together with activation offload of experts");
          }),
  };
}

}  // namespace

std::vector<Rule> dispatcher_rules() {
  return join({deepep_rows, hybridep_rows, shared_expert_rows, padding_and_stash_rows});
}

}  // namespace moecast::rules
