#pragma once
/// Everything that an estimate depends on and a layout does not change, frozen before the first
/// evaluation.
#include <memory>
#include <string>
#include <vector>

#include "estimate/prices.hpp"
#include "moecast/calibration.hpp"
#include "moecast/cluster.hpp"
#include "moecast/estimate.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/run.hpp"
#include "moecast/stack.hpp"

namespace moecast {

/// What the stack has switched on: software.features of the run over the stack's defaults.
struct Features {
  bool transformer_engine = true;
  bool router_fusion = false, permute_fusion = false, rope_fusion = true;
  bool fused_grouped_mlp = false;   ///< one launch for fc1 + activation + fc2 (CuTeDSL op fuser)
  bool grouped_mm = false;          ///< one PyTorch grouped GEMM per linear, wgrad added apart
  bool sequential_experts = false;  ///< one GEMM chain per expert, no grouping
  bool unfused_attention = false, unfused_kernels = false;
  bool static_dispatch = false;  ///< no host sync in dispatch (static budget, drop-and-pad)
  bool fp8_attention = false, fp8_output_proj = false;
  Tristate fp8_param_gather =
      Tristate::automatic;  ///< automatic: on where Bridge's recipe preset has it on
  bool te_cross_entropy = true;
  bool single_queue = false;  ///< CUDA_DEVICE_MAX_CONNECTIONS=1
  /// The allocator does not reuse blocks of two streams while a graph is captured.
  bool captures_without_reuse = false;
};

/// HybridEP's settings beside its SMs, from software.env. Ref: NVIDIA/Megatron-LM
/// transformer_config.py (moe_hybridep_num_blocks_*), deepseek-ai/DeepEP csrc/hybrid_ep/config.cuh
/// (NUM_OF_TOKENS_PER_CHUNK_*_API).
struct HybridEp {
  int dispatch_chunk_tokens = kTokensPerChunk, combine_chunk_tokens = kTokensPerChunk;
  int permute_blocks = 0, unpermute_blocks = 0;  ///< 0 = enough for the whole GPU
};

/// Ablation: the resource costs this share of its price (0 = free). Ref: the wall rule,
/// docs/architecture.md.
struct Ablation {
  double compute = 1, communication = 1, host = 1;
};

/// Distinct kinds of layers that one model may have.
inline constexpr std::size_t kMaxLayerClasses = 16;

struct Problem {
  Run run;  ///< as asked; its layout is not read by the evaluator
  ModelSpec model;
  Cluster cluster;
  Profile profile;
  Stack stack;
  Software software;  ///< completed from the stack
  Features features;
  HybridEp hybridep;
  double dispatch_capacity =
      1.0;  ///< rows held by a static budget against the balanced share (paged stash), else 1
  double fragmentation = 0;  ///< the stack's allowance for the run's allocator setting
  double imbalance = 1.0;    ///< rows of the busiest EP rank over the mean (a histogram in
                             ///< run.routing goes by EP size)
  int world = 1, seq_length = 0, global_batch_size = 0;
  std::vector<LayerKind> classes;   ///< distinct layer kinds of decoder and MTP
  std::vector<int> class_of_layer;  ///< per decoder layer
  std::vector<int> mtp_classes;     ///< classes of ONE MTP depth
  Ablation ablation;
  std::vector<Warning> warnings;  ///< about the inputs

  [[nodiscard]] const System& system() const { return cluster.system(); }
  [[nodiscard]] Prices prices() const {
    return {&profile.calibration, &cluster.system(), stack.memory_kernel_factor};
  }
};

/// Loads model, system, profile and stack of a run; all problems at once. `fitted` false: the
/// parameters' priors, without what measured steps said of them (stack.fit).
Result<Problem> make_problem(const Run& run, bool fitted = true);

}  // namespace moecast
