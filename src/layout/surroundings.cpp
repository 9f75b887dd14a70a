/// What rules read beside the configuration, from the configuration alone.
#include <algorithm>
#include <charconv>

#include "layout/environment.hpp"
#include "layout/rules.hpp"

namespace moecast {
namespace {

struct KnownGpu {
  std::string_view name;
  double compute_capability;
  bool grace;
  int per_node, per_domain;
};
constexpr KnownGpu kGpus[] = {
    {"v100", 7.0, false, 8, 8},   {"a100", 8.0, false, 8, 8},  {"h100", 9.0, false, 8, 8},
    {"h800", 9.0, false, 8, 8},   {"h200", 9.0, false, 8, 8},  {"gh200", 9.0, true, 4, 4},
    {"b200", 10.0, false, 8, 8},  {"b300", 10.3, false, 8, 8}, {"gb200", 10.0, true, 4, 72},
    {"gb300", 10.3, true, 4, 72},
};

void name_gpu(Surroundings& at, const MegatronConfig& c) {
  for (const KnownGpu& gpu : kGpus) {
    if (c.gpu != gpu.name) continue;
    at.gpu = gpu.name;
    at.compute_capability = gpu.compute_capability;
    at.grace = gpu.grace;
    at.gpus_per_node = gpu.per_node;
    at.gpus_per_nvlink_domain = gpu.per_domain;
  }
}

int integer_or(std::string_view text, int fallback) {
  int value = fallback;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void read_environment(Surroundings& at, const MegatronConfig& c) {
  at.max_connections = integer_or(environment_of(c.env, "CUDA_DEVICE_MAX_CONNECTIONS"), -1);
  at.hybridep_domain =
      integer_or(environment_of(c.env, "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"), 0);
  at.expandable_segments = allocator_says(c.env, "expandable_segments:True");
  at.captures_without_reuse = captures_without_reuse(c.env);
  at.nccl_graph_register_off = environment_of(c.env, "NCCL_GRAPH_REGISTER") == "0";
  at.cpu_offload_v1 = environment_of(c.env, "NVTE_CPU_OFFLOAD_V1") == "1";
  at.fused_grouped_mlp_env =
      integer_or(environment_of(c.env, "NVTE_CUTEDSL_FUSED_GROUPED_MLP"), 0) > 0;
  at.graph_node_priority = environment_of(c.env, "CUDA_GRAPHS_USE_NODE_PRIORITY") == "1";
}

void read_layers(Surroundings& at, const MegatronConfig& c) {
  const auto& freq = c.moe_layer_freq;
  const bool experts = c.num_experts.value_or(0) > 0;
  const bool every_nth = freq.size() == 1 && freq[0] > 0;
  at.layer_freq_fits = every_nth || freq.size() == static_cast<std::size_t>(c.num_layers);
  at.has_moe_layer = experts && std::any_of(freq.begin(), freq.end(), [](int f) { return f != 0; });
  at.has_dense_layer =
      !experts || (every_nth ? freq[0] > 1
                             : std::any_of(freq.begin(), freq.end(), [](int f) { return f == 0; }));
}

}  // namespace

Surroundings surroundings_of(const MegatronConfig& c, Flavour flavour) {
  Surroundings at;
  at.flavour = flavour;
  at.versions = {parse_version(c.pytorch_version), parse_version(c.te_version),
                 parse_version(c.megatron_core_version), parse_version(c.bridge_version)};
  name_gpu(at, c);
  read_environment(at, c);
  read_layers(at, c);
  at.attention = {{c.num_attention_heads, c.num_query_groups.value_or(c.num_attention_heads),
                   c.multi_latent_attention}};
  at.layout = scan_layout(c.pipeline_model_parallel_layout);
  return at;
}

}  // namespace moecast
