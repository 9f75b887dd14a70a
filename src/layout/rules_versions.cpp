/// Version gates. A gate with a known older version is an error of its own; unknown versions are
/// one warning per package.
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "layout/rules_detail.hpp"

namespace moecast {
namespace {

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

}  // namespace

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
  bool (*used)(In);
  std::string_view what;
  std::string_view key;
  std::string_view applies;
  std::string_view source;
};

bool delayed(In in) { return in.layout.delay_wgrad_compute; }
bool quantized_experts(In in) { return quantized(in) && moe(in); }

constexpr long kPyTorch26 = 2006000;
constexpr std::string_view kWgrad = "moe.delay_wgrad_compute";
constexpr std::string_view kFeatures = "software.features";

constexpr std::array kGates = std::to_array<Gate>({
    {"EP-OVERLAP-PYTORCH", &Versions::pytorch, kPyTorch26,
     [](In in) { return in.layout.overlap_moe_expert_parallel_comm; },
     "EP overlap (older ones hang)", "moe.overlap_moe_expert_parallel_comm", "", kCommOverlap},
    {"DELAY-WGRAD-TE", &Versions::transformer_engine, 2003000, delayed, "delay_wgrad_compute",
     kWgrad, "", "megatron/core/extensions/transformer_engine.py"},
    {"DELAY-WGRAD-FUSION-TE", &Versions::transformer_engine, 2007000, delayed,
     "delay_wgrad_compute with gradient accumulation fusion (Bridge's default)", kWgrad, kBridge,
     kCommOverlap},
    {"DELAY-WGRAD-REDUCE-TE", &Versions::transformer_engine, 2007000,
     [](In in) { return delayed(in) && in.layout.overlap_grad_reduce; },
     "delay_wgrad_compute with overlap_grad_reduce", kWgrad, kBridge, kCommOverlap},
    {"DELAY-WGRAD-GRAPH-TE", &Versions::transformer_engine, 2010000,
     [](In in) { return delayed(in) && te_graph(in); },
     "delay_wgrad_compute with transformer_engine graphs", kWgrad, "", kTransformerConfig},
    {"DELAY-WGRAD-SCOPE-TE", &Versions::transformer_engine, 2012000,
     [](In in) { return delayed(in) && wgrad_in_graph(in); },
     "delay_wgrad_compute with the weight gradient in the graph scope", kWgrad, "", kCommOverlap},
    {"NVFP4-TE", &Versions::transformer_engine, 2007000,
     [](In in) { return in.layout.precision == Precision::nvfp4; }, "nvfp4", "precision", "",
     kTransformerConfig},
    {"FP8-EXPERTS-TE", &Versions::transformer_engine, 1011000, quantized_experts,
     "FP8 grouped GEMM", "precision", "", kTransformerConfig},
    {"FP8-RECOMPUTE-TE", &Versions::transformer_engine, 2006000,
     [](In in) {
       return quantized(in) && (recomputes(in, RecomputeModule::moe_act) ||
                                recomputes(in, RecomputeModule::layernorm));
     },
     "FP8 with recompute of moe_act or layernorm", "recompute.modules", "", kTransformerConfig},
    {"PERMUTE-FUSION-TE", &Versions::transformer_engine, 2001000,
     [](In in) { return feature(in, "permute_fusion"); }, "permute_fusion", kFeatures, "",
     kTransformerConfig},
    {"ROUTER-FUSION-TE", &Versions::transformer_engine, 2007000,
     [](In in) { return feature(in, "router_fusion"); }, "router_fusion", kFeatures, "",
     kTransformerConfig},
    {"FUSED-MLP-TE", &Versions::transformer_engine, 2014000,
     [](In in) { return feature(in, "fused_grouped_mlp"); }, "fused_grouped_mlp", kFeatures, "",
     "megatron/core/transformer/moe/experts.py"},
});

std::string version_text(long v) {
  return fmt::format("{}.{}.{}", v / 1000000, v / 1000 % 1000, v % 1000);
}
std::string_view package_name(long Versions::*package) {
  return package == &Versions::pytorch ? "PyTorch" : "Transformer Engine";
}
std::string_view package_key(long Versions::*package) {
  return package == &Versions::pytorch ? "software.pytorch" : "software.transformer_engine";
}

template <std::size_t I>
Rule gate_rule() {
  static const std::string condition =
      fmt::format("{} needs {} >= {}", kGates[I].what, package_name(kGates[I].package),
                  version_text(kGates[I].minimum));
  return {kGates[I].id,
          Severity::error,
          {kGates[I].key, package_key(kGates[I].package)},
          condition,
          "upgrade the container, or turn the feature off",
          kGates[I].applies,
          kGates[I].source,
          false,
          [](In in) {
            const long version = in.versions.*kGates[I].package;
            return version > 0 && version < kGates[I].minimum && kGates[I].used(in);
          },
          [](In in) {
            return fmt::format("{} needs {} >= {}, this is {}", kGates[I].what,
                               package_name(kGates[I].package), version_text(kGates[I].minimum),
                               version_text(in.versions.*kGates[I].package));
          }};
}

/// The used gate with the highest minimum, when the version is unknown.
const Gate* unknown_gate(In in, long Versions::*package) {
  if (in.versions.*package > 0) return nullptr;
  const Gate* strictest = nullptr;
  for (const Gate& gate : kGates) {
    if (gate.package == package && gate.used(in) &&
        (strictest == nullptr || gate.minimum > strictest->minimum)) {
      strictest = &gate;
    }
  }
  return strictest;
}

template <long Versions::*Package>
Rule unknown_rule(std::string_view id) {
  return {id,
          Severity::warning,
          {package_key(Package)},
          "the version is stated where a version gate applies",
          "state the version or the container",
          "",
          "moecast",
          false,
          [](In in) { return unknown_gate(in, Package) != nullptr; },
          [](In in) {
            const Gate& gate = *unknown_gate(in, Package);
            return fmt::format("{} version unknown; {} needs >= {}", package_name(Package),
                               gate.what, version_text(gate.minimum));
          }};
}

template <std::size_t... I>
std::vector<Rule> gate_rules(std::index_sequence<I...>) {
  return {gate_rule<I>()...};
}

}  // namespace

std::vector<Rule> version_rules() {
  std::vector<Rule> rows = gate_rules(std::make_index_sequence<kGates.size()>());
  rows.push_back(unknown_rule<&Versions::pytorch>("PYTORCH-UNKNOWN"));
  rows.push_back(unknown_rule<&Versions::transformer_engine>("TE-UNKNOWN"));
  return rows;
}

}  // namespace rules
}  // namespace moecast
