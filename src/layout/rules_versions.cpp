/// Version gates. A gate with a known older version is an error of its own; unknown versions are
/// one warning per package.
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "layout/rules_detail.hpp"
#include "moecast/run.hpp"

namespace moecast {

/// "2.14.0+cu13" -> 2014000; suffixes such as .dev0, a0 and rc1 count as the release. 0 = unknown.
long parse_version(std::string_view text) {
  const std::size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return 0;
  std::array<long, 3> parts{};
  std::size_t i = first;
  for (long& part : parts) {
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      part = part * 10 + (text[i] - '0');
      if (part > 999) part = 999;
    }
    if (i + 1 >= text.size() || text[i] != '.' || text[i + 1] < '0' || text[i + 1] > '9') break;
    ++i;
  }
  return (parts[0] * 1000 + parts[1]) * 1000 + parts[2];
}

Versions parse_versions(const Software& software) {
  return {parse_version(software.pytorch), parse_version(software.transformer_engine),
          parse_version(software.megatron_core), parse_version(software.bridge)};
}

namespace rules {
namespace {

struct Gate {
  std::string_view id;
  long Versions::*package;
  long minimum;
  Broken used;
  std::string_view what, reads;
  Enforcer enforcer;
  std::string_view source;
  std::string_view section = {};
};

constexpr auto kPyTorch = &Versions::pytorch;
constexpr auto kTe = &Versions::transformer_engine;
constexpr auto kCore = Enforcer::core;
constexpr std::string_view kConstraints =
    "perf-expert-parallel-overlap: compatibility and constraints";

bool delayed(In in) { return in.c.delay_wgrad_compute; }

#define READS_GATE "te_version "
constexpr std::array kGates = std::to_array<Gate>({
    {"EP-OVERLAP-PYTORCH", kPyTorch, 2006000, overlap, "EP overlap (older ones hang)",
     "pytorch_version overlap_moe_expert_parallel_comm", kCore, kCommOverlap,
     "perf-expert-parallel-overlap: failure diagnosis"},
    {"DELAY-WGRAD-TE", kTe, 2003000, delayed, "delay_wgrad_compute",
     READS_GATE "delay_wgrad_compute", kCore, "megatron/core/extensions/transformer_engine.py"},
    {"DELAY-WGRAD-FUSION-TE", kTe, 2007000, WHEN(delayed(in) && c.gradient_accumulation_fusion),
     "delay_wgrad_compute with gradient accumulation fusion (Bridge's default)",
     READS_GATE "delay_wgrad_compute gradient_accumulation_fusion", kBridge, kCommOverlap,
     kConstraints},
    {"DELAY-WGRAD-NO-FUSION-TE", kTe, 2007000, WHEN(delayed(in) && !c.gradient_accumulation_fusion),
     "delay_wgrad_compute without gradient accumulation fusion",
     READS_GATE "delay_wgrad_compute gradient_accumulation_fusion", kLM, kArguments},
    {"DELAY-WGRAD-REDUCE-TE", kTe, 2007000,
     WHEN(delayed(in) && in.asked.overlap_grad_reduce == true),
     "delay_wgrad_compute with overlap_grad_reduce",
     READS_GATE "delay_wgrad_compute overlap_grad_reduce", kBridge, kCommOverlap, kConstraints},
    {"DELAY-WGRAD-REDUCE-TE28", kTe, 2008000, WHEN(delayed(in) && c.overlap_grad_reduce == true),
     "delay_wgrad_compute with overlap_grad_reduce",
     READS_GATE "delay_wgrad_compute overlap_grad_reduce", kLM, kArguments},
    {"DELAY-WGRAD-GRAPH-TE", kTe, 2010000, WHEN(delayed(in) && te_graph(in)),
     "delay_wgrad_compute with transformer_engine graphs",
     READS_GATE "delay_wgrad_compute " READS_GRAPH, kCore, kTransformerConfig},
    {"DELAY-WGRAD-SCOPE-TE", kTe, 2012000,
     WHEN(delayed(in) && wgrad_in_graph(in) &&
          (at.flavour == Flavour::bridge || c.overlap_grad_reduce == true)),
     "delay_wgrad_compute with the weight gradient in the graph scope",
     READS_GATE "delay_wgrad_compute overlap_grad_reduce " READS_GRAPH " " READS_SHARED, kCore,
     kCommOverlap, kConstraints},
    {"WGRAD-UNDER-DISPATCH-TE", kTe, 2003000, WHEN(c.overlap_dispatch_backward_with_experts_wgrad),
     "overlap_dispatch_backward_with_experts_wgrad",
     READS_GATE "overlap_dispatch_backward_with_experts_wgrad", kCore, kTransformerConfig},
    {"NVFP4-TE", kTe, 2007000, fp4, "nvfp4", READS_GATE "fp4_format", kCore, kTransformerConfig},
    {"FP8-EXPERTS-TE", kTe, 1011000, WHEN(quantized(in) && moe(in)), "FP8 grouped GEMM",
     READS_GATE "fp8_format fp4_format num_experts", kCore, kTransformerConfig},
    {"FP8-RECOMPUTE-TE", kTe, 2006000,
     WHEN(quantized(in) && (recomputes(in, "moe_act"_w) || recomputes(in, "layernorm"_w))),
     "FP8 with recompute of moe_act or layernorm",
     READS_GATE "fp8_format fp4_format " READS_RECOMPUTE, kCore, kTransformerConfig},
    {"PERMUTE-FUSION-TE", kTe, 2001000, WHEN(c.moe_permute_fusion), "permute_fusion",
     READS_GATE "moe_permute_fusion", kCore, kTransformerConfig},
    {"ROUTER-FUSION-TE", kTe, 2007000, WHEN(c.moe_router_fusion), "router_fusion",
     READS_GATE "moe_router_fusion", kCore, kTransformerConfig},
    {"FUSED-MLP-TE", kTe, 2014000, WHEN(c.use_transformer_engine_op_fuser&& at.run_file),
     "fused_grouped_mlp", READS_GATE "use_transformer_engine_op_fuser", kCore, kExperts},
    {"SINGLE-WEIGHT-TE", kTe, 2014000,
     WHEN(c.moe_single_grouped_weight || c.moe_single_grouped_bias), "single grouped weights",
     READS_GATE "moe_single_grouped_weight moe_single_grouped_bias", kCore, kTransformerConfig},
});

std::string version_text(long v) {
  return fmt::format("{}.{}.{}", v / 1000000, v / 1000 % 1000, v % 1000);
}
std::string_view package_name(long Versions::*package) {
  return package == kPyTorch ? "PyTorch" : "Transformer Engine";
}

template <std::size_t I>
Rule gate_rule() {
  static const std::string condition =
      fmt::format("{} needs {} >= {}", kGates[I].what, package_name(kGates[I].package),
                  version_text(kGates[I].minimum));
  return error(kGates[I].id, kGates[I].reads, condition,
               "upgrade the container, or turn the feature off", kGates[I].source,
               [](In in) {
                 return older(in.at.versions.*kGates[I].package, kGates[I].minimum) &&
                        kGates[I].used(in);
               })
      .by(kGates[I].enforcer)
      .section(kGates[I].section)
      .says([](In in) {
        return fmt::format("{} needs {} >= {}, this is {}", kGates[I].what,
                           package_name(kGates[I].package), version_text(kGates[I].minimum),
                           version_text(in.at.versions.*kGates[I].package));
      });
}

/// The used gate with the highest minimum, when the version is unknown.
const Gate* unknown_gate(In in, long Versions::*package) {
  if (in.at.versions.*package > 0) return nullptr;
  const Gate* strictest = nullptr;
  for (const Gate& gate : kGates) {
    if (gate.package == package && gate.used(in) &&
        (gate.enforcer == kCore ||
         (gate.enforcer == kBridge) == (in.at.flavour == Flavour::bridge)) &&
        (strictest == nullptr || gate.minimum > strictest->minimum)) {
      strictest = &gate;
    }
  }
  return strictest;
}

template <long Versions::*Package>
Rule unknown_rule(std::string_view id, std::string_view reads) {
  return warning(id, reads, "the version is stated where a version gate applies",
                 "state the version or the container", "moecast",
                 [](In in) { return unknown_gate(in, Package) != nullptr; })
      .by(kOwn)
      .says([](In in) {
        const Gate& gate = *unknown_gate(in, Package);
        return fmt::format("{} version unknown; {} needs >= {}", package_name(Package), gate.what,
                           version_text(gate.minimum));
      });
}

template <std::size_t... I>
std::vector<Rule> gate_rules(std::index_sequence<I...>) {
  return {gate_rule<I>()...};
}

}  // namespace

std::vector<Rule> version_rules() {
  std::vector<Rule> rows = gate_rules(std::make_index_sequence<kGates.size()>());
  rows.push_back(unknown_rule<&Versions::pytorch>("PYTORCH-UNKNOWN", "pytorch_version"));
  rows.push_back(unknown_rule<&Versions::transformer_engine>("TE-UNKNOWN", "te_version"));
  return rows;
}

}  // namespace rules
}  // namespace moecast
