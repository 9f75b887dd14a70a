#pragma once
/// What kernels, links and hosts really reach on a system: the fitted parameters of every price
/// formula. Read from hwdb/profiles (schema moecast/profile@1); every value has a standard
/// deviation, bounds and a source. Each parameter means something by itself (a latency, a fraction
/// of a peak); none is keyed by a model or a row.
#include <array>
#include <map>
#include <string>
#include <vector>

#include "moecast/result.hpp"

namespace moecast {

/// GEMM pipes with their own efficiency. fp8 = delayed and tensorwise (current) scaling.
enum class Pipe : unsigned char { bf16, fp8, fp8_blockwise, mxfp8, nvfp4, count };
enum class Collective : unsigned char {
  all_reduce,
  all_gather,
  reduce_scatter,
  alltoall,
  send_recv,
  count
};
enum class DispatchBackend : unsigned char { alltoall, allgather, deepep, hybridep, count };
/// Attention head-width classes: 64, 128, 192/128 (MLA), 256.
enum class HeadClass : unsigned char { d64, d128, d192, d256, count };

struct GemmParameters {
  double launch_us = 0;           ///< device-side start and drain of one kernel
  double efficiency = 0;          ///< of the dense peak, sustained clocks
  double k_half = 0;              ///< fixed cost per tile, in elements of K
  double tile_edge = 0;           ///< a x b tile waits for operands where edge (1/a + 1/b) > 1
  double wave_quantization = 0;   ///< share of a tail wave that is lost
  double bandwidth_fraction = 0;  ///< of HBM when the GEMM streams operands
  double dgrad_ratio = 1;         ///< efficiency against forward
  double wgrad_ratio = 1;         ///< the same; accumulates into the gradient
};
struct GroupedParameters {
  double efficiency_ratio = 0;     ///< against the dense GEMM of the same pipe, forward and dgrad
  double wgrad_ratio = 0;          ///< the same for wgrad
  double launch_us_per_group = 0;  ///< device time per expert GEMM, multi-stream back end
  // one launch for all experts
  double fused_efficiency_ratio = 0;  ///< against multi-stream
  double few_rows_ratio = 1;          ///< efficiency of the kernel for at most 128 rows per expert
  double wave_quantization = 0;       ///< share of a tail wave that is lost
  double single_launch_us = 0;        ///< device-side start, with the reading of the groups' sizes
};
/// A kernel that streams memory: t = start + (bytes + rows x row_bytes) / (HBM x fraction) + bytes
/// of a row / row_rate.
struct StreamParameters {
  double start_us = 0;
  double fraction = 0;         ///< of HBM
  double row_bytes = 0;        ///< what starting and reducing a row costs, as bytes
  double row_gb_per_s = 1e4;   ///< at which a block streams its row: the first and last run alone
  double gb_per_s_per_sm = 0;  ///< of a kernel that may use few SMs; 0 = not limited
};
/// Classes of streaming kernels; quantisers are per recipe, in the order of Precision.
enum class Stream : unsigned char {
  elementwise,
  rope,
  activation,
  norm,
  norm_backward,
  loss,
  adam,
  router,
  sort,
  permute,
  unpermute,
  fp8_delayed,
  fp8_tensorwise,
  fp8_blockwise,
  mxfp8,
  nvfp4,
  count
};
struct AttentionParameters {
  double forward_efficiency = 0;  ///< of the BF16 peak, causal FLOPs, long sequences
  double backward_efficiency = 0;
  double forward_s_half = 0;  ///< tokens of context lost per sequence (ramp of the causal kernel)
  double backward_s_half = 0;
};
struct LinkParameters {
  double latency_us = 0;  ///< per operation
  double latency_us_per_rank = 0;
  double bandwidth_fraction = 0;  ///< of the link's rate per direction, large messages
  double ramp_us = 0;   ///< what a large message costs more: the change from LL to Simple protocols
  double ramp_mib = 0;  ///< message that pays half of it
  double own_share = 0;  ///< cost of a rank's own part of the buffer, against a byte on the link
};
struct DispatchParameters {
  double latency_us = 0;  ///< per call (dispatch or combine): metadata, barriers, first bytes
  double nvlink_fraction = 0;
  double nic_fraction = 0;
  double gb_per_s_per_sm = 0;  ///< bytes that one SM of the dispatch kernel moves; 0 = not limited
  double rank_us = 0;          ///< of one SM per token and rank of the NVLink domain
  double network_row_us = 0;   ///< of one SM per row that it sends to another domain
  double network_us_per_sm = 0;  ///< per call and SM across domains: queue pairs and their flags
  double combine_gb_per_s_per_sm = 0;  ///< the same of combine, which also adds
};

template <typename E, typename T>
using PerEnum = std::array<T, static_cast<std::size_t>(E::count)>;

struct Calibration {
  std::string name;    ///< profile
  std::string system;  ///< the system it belongs to
  PerEnum<Pipe, GemmParameters> gemm;
  PerEnum<Pipe, GroupedParameters> grouped;
  PerEnum<HeadClass, AttentionParameters> attention;
  /// Rate that tensor cores gain over the sustained one when the rest of the step leaves them
  /// power: times 1 + gain x (1 - their share of the GPU's time).
  double burst_gain = 0;
  double attention_launch_us = 0;
  double attention_tail = 0;  ///< of a tile over all keys that the other SMs wait for at the end
  double attention_fp8_speedup = 1;
  double attention_sink_slowdown = 1;      ///< learnt softmax sinks, BF16
  double attention_sink_fp8_slowdown = 1;  ///< the same in FP8 kernels
  double attention_unfused_bytes =
      0;  ///< bytes per score element of unfused attention, forward; backward twice
  double scan_bandwidth_fraction = 0;  ///< Mamba-2 SSD and gated-delta scans, of HBM
  double accumulate_fraction = 0;      ///< of HBM, wgrad that adds into the fp32 gradient
  double fp32_gemm_tflops = 0;         ///< router GEMM in fp32
  double kernel_floor_us = 0;          ///< shortest kernel
  PerEnum<Stream, StreamParameters> stream;
  double unfused_permute_factor = 1;    ///< bytes of the unfused permute against the fused one
  double unfused_unpermute_factor = 1;  ///< scatter-adds into fp32 against the fused unpermute
  PerEnum<Collective, LinkParameters> nvlink;   ///< inside one NVLink domain
  PerEnum<Collective, LinkParameters> network;  ///< across domains, of the NIC line
  PerEnum<DispatchBackend, DispatchParameters> dispatch;
  double contention_compute_per_sm =
      0;  ///< slow-down of compute beside communication, per share of SMs taken
  double contention_comm = 1;           ///< slow-down of communication beside compute
  double host_launch_us = 0;            ///< Python + framework + driver, one eager kernel, forward
  double host_backward_factor = 1;      ///< the same in backward (C++ autograd), against forward
  double host_linear_launches = 0;      ///< launch-equivalents of one TE linear's host work
  double host_expert_launches = 0;      ///< of one expert's GEMM in a multi-stream grouped linear
  double host_quantize_launches = 0;    ///< more of them per quantised operand
  double host_collective_launches = 0;  ///< launch-equivalents of one NCCL call
  double host_overlap_factor = 1;       ///< host work under EP overlap against plain
  double graph_launch_us = 0;           ///< one CUDA-graph replay of a layer scope
  double sync_us = 0;                   ///< host wakes up after a device-to-host wait
  double step_fixed_ms = 0;             ///< data loading, logging, norms: once per step, exposed
  double host_link_fraction = 0;        ///< of the measured host link, offload traffic
  double host_link_latency_us = 0;      ///< one copy to or from the host
  double host_adam_gb_per_s = 0;        ///< CPU optimizer, bytes of state per second and GPU
};

/// One row of the parameter table: everything that reads, writes, documents, perturbs or fits
/// parameters uses it.
struct Parameter {
  std::string path;  ///< gemm.bf16.efficiency
  std::string unit;  ///< us, fraction, ratio, elements, ...
  std::string meaning;
  double low = 0, high = 0;  ///< physical bounds
  double* (*locate)(Calibration&, int) = nullptr;
  int index = 0;  ///< for locate
  [[nodiscard]] double& in(Calibration& c) const { return *locate(c, index); }
  [[nodiscard]] double in(const Calibration& c) const {
    return *locate(const_cast<Calibration&>(c), index);
  }
};
const std::vector<Parameter>& parameter_table();

struct ParameterValue {
  double value = 0, sd = 0;  ///< sd relative to the value
  std::string source, kind;  ///< kind: datasheet | measured | fitted | assumed
};
struct Profile {
  Calibration calibration;
  std::map<std::string, ParameterValue> values;  ///< by path
};
/// hwdb/profiles/NAME.yaml, or a path. `extends: NAME` takes the rest from another profile. Every
/// parameter must be there in the end.
Result<Profile> load_profile(const std::string& name_or_path);

}  // namespace moecast
