#pragma once
/// How long a stage takes forward and backward: a host queue feeding one GPU stream, or, with EP
/// overlap, two streams.
///
/// Host and GPU are two queues. Kernel i starts at max(end of kernel i-1, its launch); a
/// device-to-host sync empties the queue. So behind a sync nearly all host time is exposed, and
/// without syncs only what the GPU cannot hide. Nothing is approximated by one max over a layer.
/// Ref of EP overlap: Megatron core/pipeline_parallel/combined_1f1b.py and
/// core/models/common/model_chunk_schedule_plan.py.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "estimate/op.hpp"
#include "estimate/problem.hpp"

namespace moecast {

/// An operation as it will really be issued under a layout: host seconds resolved, graphs and
/// recomputation applied.
struct IssuedOp {
  const char* name = "";
  double gpu = 0;   ///< seconds
  double host = 0;  ///< seconds of the issuing thread
  float launches = 1;
  OpClass cls = OpClass::memory_bound;
  Part part = Part::attention;
  bool wgrad = false, sync = false, recomputed = false, shared = false;
};

/// A layer (or an end of the model) under one layout.
struct IssuedLayer {
  std::vector<IssuedOp> forward, backward;
};

/// What the layout says about issuing (the part that the shard key leaves out).
struct IssueFlags {
  std::uint16_t recompute = 0;  ///< modules run again in backward
  bool recompute_all = false;   ///< this layer is fully recomputed
  std::uint8_t graph = 0;       ///< modules replayed as one graph per layer and direction
  bool full_graph = false;      ///< full_iteration: no launches, no syncs
  bool overlap = false, delay_wgrad = false, shared_overlap = false;
  double offload_bytes =
      0;  ///< per layer and microbatch, device to host in forward and back in backward
  double sm_share = 0;  ///< SMs that dispatch kernels hold, of all
  bool operator==(const IssueFlags&) const = default;
};

IssuedLayer issue(const Problem& p, const LayerOps& ops, const IssueFlags& flags);
/// Reads of the flags: graphs.
void issue_forward(const Problem& p, const LayerOps& ops, const IssueFlags& flags,
                   std::vector<IssuedOp>& issued);
void issue_backward(const Problem& p, const LayerOps& ops, const IssueFlags& flags,
                    std::vector<IssuedOp>& issued);

/// Where the seconds of a piece of work go. gpu[...] is busy time by class; `duration` is wall
/// time.
struct Spent {
  double duration = 0;
  std::array<double, static_cast<std::size_t>(OpClass::count)> gpu{};
  double recompute = 0;      ///< GPU time of recomputed operations
  double ep_exposed = 0;     ///< communication that nothing hides
  double other_exposed = 0;  ///< TP and CP, always on the compute stream
  double offload_exposed = 0;
  double dp_exposed = 0;  ///< FSDP's gathers and reduce-scatters that a stage cannot hide
  [[nodiscard]] double compute() const;
  [[nodiscard]] double host_exposed() const;  ///< duration - everything else
  Spent& operator+=(const Spent& o);
  friend Spent operator*(Spent s, double k);
};

/// Optional recorder of what ran when (relative seconds), for traces.
struct Placed {
  const char* name;
  bool comm_stream;
  bool backward;
  double start, duration;
};

/// A stage in execution order.
using IssuedStage = std::vector<const IssuedLayer*>;

struct StageTime {
  Spent forward, backward;
};
/// One stream. `drained`: a device sync separates every forward and backward (batched p2p of 1F1B);
/// otherwise forward and backward alternate and the host runs ahead across them (steady state: the
/// second of two rounds).
StageTime stage_time(const Problem& p, const IssuedStage& stage, bool drained, bool shared_overlap,
                     std::vector<Placed>* record = nullptr);

/// The clocks of the two queues, and what a list of operations does to them: every new clock is the
/// later of two old ones, each plus a constant.
struct QueueClocks {
  double host = 0, gpu = 0;
};
struct QueueMap {
  QueueClocks from_host, from_gpu;
  [[nodiscard]] QueueClocks after(QueueClocks c) const {
    return {std::max(c.host + from_host.host, c.gpu + from_gpu.host),
            std::max(c.host + from_host.gpu, c.gpu + from_gpu.gpu)};
  }
};
QueueMap queue_map(const Problem& p, const std::vector<IssuedOp>& ops, bool shared_overlap);

/// EP overlap: forward of one stage beside the backward of another (both on this rank).
Spent overlapped_time(const Problem& p, const IssuedStage& forward, const IssuedStage& backward,
                      const IssueFlags& flags, std::vector<Placed>* record = nullptr);

}  // namespace moecast
