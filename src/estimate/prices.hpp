#pragma once
/// What one kernel or transfer costs on a system with a calibration. Pure functions; one formula
/// family per .cpp, each with its reference. `Prices` is cheap to build and read-only.
#include "moecast/calibration.hpp"
#include "moecast/cluster.hpp"
#include "moecast/layout.hpp"
#include "moecast/units.hpp"

namespace moecast {

enum class Pass : unsigned char { forward, dgrad, wgrad };

/// Which GEMM pipe a training precision uses.
Pipe pipe_of(Precision p);
/// Bytes of one element of a quantised operand, scales included (1/32 for MXFP8 blocks, 1/128
/// blockwise, 1/16 NVFP4).
double operand_bytes(Precision p);
/// Bytes read and written to quantise one element, row- and column-wise.
double quantize_bytes(Precision p, bool hopper);
/// Kernels that quantise one tensor: cast; amax and scale before it; swizzled scale factors after
/// it. Ref: TransformerEngine common/{cast,recipe,swizzle}.
int quantize_kernels(Precision p);
FlopsPerSecond pipe_peak(const Gpu& gpu, Pipe pipe);
/// Bytes on a rank's link per byte of nccl-tests' size: what turns algorithm into bus bandwidth.
double wire_factor(Collective op, int ranks);
/// "d64", "d128", "d192", "d256": the class of a head width.
const char* head_class_name(double qk_dim);
/// Rows per expert are padded to this by quantised recipes (0 = no padding). Ref: megatron
/// moe_utils get_align_size_for_quantization.
int row_alignment(Precision p, bool grouped_tensor);

/// A layer's linear, named by its FORWARD shape in every pass: m rows, n outputs, k inputs.
struct GemmShape {
  double m = 0, n = 0, k = 0;
};

/// NUM_OF_TOKENS_PER_CHUNK_* unless set. Ref: deepseek-ai/DeepEP csrc/hybrid_ep/config.cuh.
constexpr int kTokensPerChunk = 64;

/// What EP dispatch or combine has to move, per rank.
struct DispatchShape {
  double tokens = 0;     ///< local tokens
  double row_bytes = 0;  ///< hidden (or latent) width x 2, plus probabilities where they travel
  int topk = 1;
  int num_experts = 1;
  int num_sms = 0;                        ///< 0 = the backend's default
  double chunk_tokens = kTokensPerChunk;  ///< that HybridEP's SMs take in turns across domains
  double imbalance = 1;                   ///< of the busiest rank
};
/// Row copies per token that leave a rank, and where they go. Uniform routing without replacement.
struct DispatchVolume {
  double nvlink_copies = 0;   ///< to other ranks inside the domain (forwarding included), per token
  double network_copies = 0;  ///< to other domains, per token
  double distinct_ranks = 0;  ///< expected distinct destination ranks, own included
};
DispatchVolume dispatch_volume(Dispatcher d, const DispatchShape& shape, const GroupSpan& span);
/// Expected number of distinct bins that k draws without replacement from E experts hit, E split
/// evenly into `bins`.
double expected_distinct(int bins, int num_experts, int topk);
/// SMs of the backend's kernels where Megatron states none, for EP over so many NVLink domains:
/// Megatron token_dispatcher.py (DeepEP), deepseek-ai/DeepEP csrc/hybrid_ep/config.cuh (HybridEP).
int default_num_sms(Dispatcher d, int domains);

struct Prices {
  const Calibration* calibration = nullptr;
  const System* system = nullptr;
  double memory_factor = 1.0;  ///< stack's factor on memory-bound kernels
  double clock = 1.0;          ///< of tensor cores, against the sustained one (burst_gain)

  /// One dense GEMM. accumulate_bytes: bytes per output element of wgrad (8 = read and write fp32,
  /// 4 = bf16); 0 otherwise.
  [[nodiscard]] Seconds gemm(Pipe pipe, const GemmShape& shape, Pass pass,
                             double accumulate_bytes = 0) const;
  [[nodiscard]] Seconds fp32_gemm(const GemmShape& shape) const;
  /// `experts` GEMMs of m rows each: exactly (`even`), or as a router gives them.
  [[nodiscard]] Seconds grouped_gemm(Pipe pipe, double experts, const GemmShape& one, Pass pass,
                                     double accumulate_bytes, bool single_launch,
                                     bool even = false) const;
  struct AttentionShape {
    double batch = 1, seq_q = 0, context = 0;  ///< context = mean keys per query (causal: s/2)
    double heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
    bool fp8 = false, sinks = false;
  };
  /// Of causal attention; backward recomputes the scores: 5 matmuls against 2.
  static double attention_flops(const AttentionShape& a, bool backward);
  /// Operands and results, once each: backward reads five and writes three.
  static double attention_bytes(const AttentionShape& a, bool backward);
  [[nodiscard]] Seconds attention(const AttentionShape& a, bool backward) const;
  [[nodiscard]] Seconds unfused_attention(double scores, bool backward) const;
  [[nodiscard]] Seconds scan(double bytes) const;
  /// `rows`: tokens, where a kernel works row by row.
  [[nodiscard]] Seconds stream(Stream cls, double bytes, double rows = 0) const;
  [[nodiscard]] Seconds elementwise(double bytes) const {
    return stream(Stream::elementwise, bytes);
  }
  [[nodiscard]] Seconds adam(double bytes) const { return stream(Stream::adam, bytes); }
  /// `sms`: that the kernel may use; 0 = all.
  [[nodiscard]] Seconds permute(double bytes, bool fused, int sms = 0) const;
  [[nodiscard]] Seconds unpermute(double bytes, bool fused, int sms = 0) const;
  /// `tensors` one after the other, `bytes` together.
  [[nodiscard]] Seconds quantize(Precision p, double bytes, double tensors = 1) const;
  [[nodiscard]] Seconds small_kernels(double count) const;
  /// `bytes` as nccl-tests counts them: the whole buffer of all_gather, reduce_scatter and
  /// alltoall; the message of the others.
  [[nodiscard]] Seconds collective(Collective op, double bytes, const GroupSpan& span) const;
  /// One dispatch (or combine) call.
  [[nodiscard]] Seconds dispatch(Dispatcher d, const DispatchShape& shape, const GroupSpan& span,
                                 bool combine) const;
  [[nodiscard]] Seconds host_copy(double bytes) const;

 private:
  [[nodiscard]] Seconds move(Stream cls, double bytes, int sms) const;
};

}  // namespace moecast
