#pragma once
/// What one forecast says. Filled by the evaluator (estimate), printed by report, kept small for
/// the search (Summary).
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "moecast/layout.hpp"
#include "moecast/run.hpp"
#include "moecast/units.hpp"

namespace moecast {

enum class Wall : std::uint8_t { memory, communication, host, compute };
std::string to_string(Wall w);

/// One named amount with its formula; a tree (memory detail).
struct MemoryItem {
  std::string name;  ///< such as "moe_act output"
  Bytes bytes;
  double count = 0;     ///< how many alive (layers x microbatches); 0 = not counted
  std::string formula;  ///< as in docs, with this layout's numbers
  std::vector<MemoryItem> children;
};

struct RankMemory {
  int pp_rank = 0;
  double params = 0;  ///< elements on the rank, dense and expert
  Bytes weights, gradients, optimizer, activations, dispatcher, cuda_graph, workspace;
  Bytes peak;           ///< allocated: the sum of the above
  Bytes peak_reserved;  ///< with reserve (context, NCCL) and fragmentation: what must fit
  Bytes at_rest;  ///< allocated between steps: model state, buffers, workspaces, what dispatchers
                  ///< hold
  Bytes peak_before_graphs;  ///< allocated peak of the warm-up steps, before graphs are captured
  Bytes outside_allocator;   ///< context and communicators: part of peak_reserved
  Bytes peak_first_step;     ///< allocated peak of step 1: optimizer moments come at its end
  Bytes host;                ///< pinned host memory that offload takes
  std::string moment;        ///< the named moment at which the peak stands
  MemoryItem detail;
};

/// Seconds of the critical rank. The first nine fields and optimizer add up to the step time.
struct TimeBreakdown {
  Seconds compute, ep_comm_exposed, tp_comm_exposed, cp_comm_exposed, pp_comm_exposed,
      dp_comm_exposed, pipeline_bubble, host_exposed, optimizer;
  Seconds ep_comm_total, dp_comm_total;  ///< include what is hidden
  Seconds recompute;  ///< part of compute (and of exposed parts) that recomputation adds
  // compute, split by kernel class
  Seconds grouped_gemm, dense_gemm, attention, permute, memory_bound, quantize;
};

struct GroupReport {
  std::string name;  ///< tp cp dp ep etp edp pp
  int size = 1;
  int domains_spanned = 1;
  BytesPerSecond bandwidth;
};

struct Warning {
  std::string rule;  ///< rule id, or a word such as "model", "profile"
  std::string message;
};

struct Advice {
  std::string change;  ///< knob=value, as --set takes it
  double step_time_delta_pct = 0;
  double memory_delta_gib = 0;
};

/// One box of the simulated step, for --trace.
struct TraceEvent {
  int pp_rank = 0;
  std::string track;  ///< compute, comm, p2p, dp, host
  std::string name;
  std::string detail;
  Seconds start, duration;
};

struct Estimate {
  Run run;  ///< completed; pipeline_model_parallel_layout holds the string that auto chose (if any)
  bool fits = false;
  Seconds step_time, step_time_p05, step_time_p95;
  double tflops_per_gpu = 0, tokens_per_s_per_gpu = 0, mfu_pct = 0, model_flops_per_token = 0;
  double params_total = 0, params_active = 0, params_per_rank_max = 0;
  Bytes capacity, usable;  ///< device memory; what a run may reserve
  std::vector<RankMemory> ranks;
  int largest_rank = 0;
  std::string largest_rank_reason;
  double max_imbalance_that_fits =
      0;  ///< rows over mean that the largest rank can take; 0 = no MoE
  Wall wall = Wall::compute;
  std::vector<std::pair<std::string, Seconds>>
      ablation;  ///< wall name -> step time saved if that resource were free
  int critical_rank = 0;
  TimeBreakdown time;
  std::vector<GroupReport> groups;
  std::vector<Warning> warnings;
  std::vector<Advice> advice;
  std::vector<TraceEvent> trace;  ///< only when asked for
};

}  // namespace moecast
