#pragma once
/// The machine: what one GPU, node and rack are (from hwdb/systems, every value with its source),
/// and the cluster graph that is built from them. Questions are asked about rank groups: how many
/// NVLink domains and nodes a group spans, its bottleneck bandwidth and latency.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "moecast/layout.hpp"
#include "moecast/result.hpp"
#include "moecast/units.hpp"

namespace moecast {

struct Gpu {
  std::string name;
  double compute_capability = 9.0;
  int sms = 132;
  FlopsPerSecond bf16, fp8, fp4, tf32;  ///< dense peaks; fp4 = 0 where the GPU has none
  Bytes hbm_capacity;  ///< what CUDA can allocate in total (nvidia-smi total minus reserved)
  BytesPerSecond hbm_bandwidth;
  Bytes l2;
  double max_sm_clock_ghz = 1.98;
};

struct System {
  std::string name;
  Gpu gpu;
  int gpus_per_node = 8;
  int gpus_per_nvlink_domain = 8;
  BytesPerSecond nvlink_per_direction;  ///< per GPU
  Seconds nvlink_latency;               ///< GPU to GPU through the NVSwitch
  BytesPerSecond nic_per_gpu;           ///< per direction, line rate
  Seconds nic_latency;  ///< one hop through the fabric: GPU to GPU through one leaf switch
  Seconds fabric_switch_latency;  ///< what each further switch on the way adds (spine, second leaf)
  BytesPerSecond host_link_per_direction;  ///< one GPU, measured or nominal, H2D
  Seconds host_link_latency;               ///< GPU to host
  BytesPerSecond host_memory_bandwidth;    ///< per node
  Bytes host_memory;                       ///< per node
  std::string host_cpu;
  bool grace = false;  ///< Grace hosts (C2C)
  bool nvls = true;    ///< in-switch reduction
  std::string path;    ///< file it came from
};

/// What a rank group looks like on the machine (worst over all groups of the same shape).
struct GroupSpan {
  int ranks = 1;
  int ranks_per_domain =
      1;  ///< members inside one NVLink domain (the smallest share of any domain that is touched)
  int domains = 1;  ///< NVLink domains touched
  int nodes = 1;    ///< OS nodes touched
  BytesPerSecond
      bandwidth;  ///< bottleneck of the widest path between any two members, per GPU and direction
  Seconds latency;  ///< largest shortest-path latency between two members
};

/// `gpus` ranks on a system. Costs come from a Boost.Graph graph of GPUs, NVSwitch domains, hosts,
/// NICs, rails and spine.
class Cluster {
 public:
  /// gpus_used_per_domain 0 = auto: the whole domain when the job fits in one or divides evenly,
  /// else the largest power of two below the domain size that divides the job and uses at least a
  /// third of the domain (64 or 32 of 72), else the whole domain (groups then straddle).
  static Result<Cluster> build(const System& system, int gpus, int gpus_used_per_domain = 0);

  [[nodiscard]] const System& system() const;
  [[nodiscard]] int gpus() const;
  [[nodiscard]] int gpus_used_per_domain() const;
  [[nodiscard]] int domain_of(int rank) const;
  [[nodiscard]] int node_of(int rank) const;
  /// Worst case over every group {a + i*stride : i < size}, a over all starts that the mesh has.
  /// Cached; thread-safe. Throws std::logic_error for a group that the cluster cannot hold (a legal
  /// layout has none).
  [[nodiscard]] const GroupSpan& span(int stride, int size) const;
  /// One explicit group of distinct ranks, in any order.
  [[nodiscard]] GroupSpan span_of(const std::vector<int>& ranks) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Reads hwdb/systems/NAME.yaml or a path. A calibrated profile (schema moecast/profile) is
/// accepted too: its `system` is read.
Result<System> load_system(const std::string& name_or_path);
std::vector<std::string> shipped_systems();

/// Peak of the GEMM pipe for a precision; fp8 recipes share the fp8 peak.
FlopsPerSecond peak_flops(const Gpu& gpu, Precision p);

}  // namespace moecast
