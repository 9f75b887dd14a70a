#pragma once
/// Where a run's work goes: the knobs a layout has. A plain value, cheap to copy; derived sizes
/// (dp, edp) are functions, never stored.
#include <cstdint>
#include <string>
#include <vector>

namespace moecast {

enum class Precision : std::uint8_t {
  bf16,
  fp8_delayed,
  fp8_tensorwise,
  fp8_blockwise,
  mxfp8,
  nvfp4
};
enum class Dispatcher : std::uint8_t { alltoall, allgather, deepep, hybridep };
enum class Tristate : std::uint8_t { automatic, off, on };
enum class DType : std::uint8_t { fp32, bf16, fp16, fp8 };
enum class RecomputeGranularity : std::uint8_t { none, selective, full };
enum class RecomputeMethod : std::uint8_t { none, uniform, block };
enum class CudaGraphImpl : std::uint8_t { none, local, transformer_engine, full_iteration };
enum class PipelineSplit : std::uint8_t { automatic, megatron, explicit_string };
enum class CpCommType : std::uint8_t { p2p, all_gather, a2a, a2a_p2p };
enum class FsdpSharding : std::uint8_t { none, optim_grads_params };

/// Recompute modules, Megatron's names. A set is a bit mask over the enum.
enum class RecomputeModule : std::uint8_t {
  core_attn,
  moe_act,
  layernorm,
  mla_up_proj,
  mlp,
  moe,
  shared_experts,
  gdn_norm_out,
  mhc,
  count
};
/// Fine-grained activation offload modules, plus the layer-level cpu_offloading.
enum class OffloadModule : std::uint8_t {
  core_attn,
  attn_proj,
  expert_fc1,
  fused_group_mlp,
  moe_act,
  attn_norm,
  mlp_norm,
  qkv_linear,
  count
};
enum class GraphModule : std::uint8_t { attn, mlp, moe, moe_router, moe_preprocess, mamba, count };

template <typename E>
struct ModuleSet {
  std::uint16_t bits = 0;
  constexpr bool has(E e) const { return (bits >> static_cast<int>(e)) & 1; }
  constexpr ModuleSet& add(E e) {
    bits = static_cast<std::uint16_t>(bits | (1u << static_cast<int>(e)));
    return *this;
  }
  constexpr bool empty() const { return bits == 0; }
  constexpr bool operator==(const ModuleSet&) const = default;
};

struct Layout {
  int tp = 1, pp = 1, vpp = 1, cp = 1, ep = 1, etp = 1;
  int micro_batch_size = 1;
  int microbatch_group_size_per_vp_stage = 0;  ///< 0 = pp (Megatron's default)
  PipelineSplit pipeline_split = PipelineSplit::automatic;
  Tristate sequence_parallel = Tristate::automatic;
  Precision precision = Precision::bf16;

  Dispatcher dispatcher = Dispatcher::alltoall;
  int dispatcher_num_sms = 0;  ///< 0 = the backend's default
  bool overlap_moe_expert_parallel_comm = false;
  bool delay_wgrad_compute = false;
  bool moe_shared_expert_overlap = false;

  RecomputeGranularity recompute_granularity = RecomputeGranularity::none;
  RecomputeMethod recompute_method = RecomputeMethod::none;
  int recompute_num_layers = 0;
  ModuleSet<RecomputeModule> recompute_modules;

  ModuleSet<OffloadModule> offload_modules;
  double offload_fraction = 1.0;  ///< activation_fraction
  double optimizer_offload_fraction = 0.0;
  int cpu_offloading_num_layers = 0;  ///< layer-level activation offload (pp = 1)

  CudaGraphImpl cuda_graph_impl = CudaGraphImpl::none;
  ModuleSet<GraphModule>
      cuda_graph_scope;  ///< empty with transformer_engine/local = the whole layer

  bool distributed_optimizer = true;
  DType grad_dtype = DType::fp32, master_dtype = DType::fp32, moment_dtype = DType::fp32;
  bool precision_aware_optimizer = false;

  bool overlap_grad_reduce = true, overlap_param_gather = true, tp_comm_overlap = false;
  CpCommType cp_comm_type = CpCommType::p2p;
  FsdpSharding fsdp = FsdpSharding::none;

  bool operator==(const Layout&) const = default;

  [[nodiscard]] bool sp() const {
    return sequence_parallel == Tristate::on ||
           (sequence_parallel == Tristate::automatic && tp > 1);
  }
  [[nodiscard]] int dp(int world) const { return world / (tp * cp * pp); }
  [[nodiscard]] int edp(int world) const { return world / (etp * ep * pp); }
  [[nodiscard]] int group_size() const {
    return microbatch_group_size_per_vp_stage > 0 ? microbatch_group_size_per_vp_stage : pp;
  }
};

/// One virtual pipeline stage: stage index = vpp_chunk * pp + pp_rank.
struct Stage {
  bool embedding = false;
  std::vector<int> layers;  ///< indices into ModelSpec::layers
  bool mtp = false;         ///< all MTP depths
  bool loss = false;
  bool operator==(const Stage&) const = default;
};

/// What every (pp rank, chunk) holds; stages[chunk * pp + rank].
struct PipelinePlan {
  int pp = 1, vpp = 1;
  std::vector<Stage> stages;
  std::string layout_string;  ///< Megatron's pipeline_model_parallel_layout that says the same;
                              ///< empty when the even split says it
  int mtp_num_layers = 0;     ///< MTP depths of the stage with mtp: one `m` each in the string
  [[nodiscard]] const Stage& at(int rank, int chunk) const {
    return stages[static_cast<std::size_t>(chunk * pp + rank)];
  }
  bool operator==(const PipelinePlan&) const = default;
};

std::string to_string(Precision p);
std::string to_string(Dispatcher d);

}  // namespace moecast
