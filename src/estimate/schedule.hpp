#pragma once
/// Megatron's pipeline schedules, exactly: no pipelining, 1F1B, interleaved 1F1B with any group
/// size, and the combined forward-backward steps of EP overlap. The order of a rank is fixed; times
/// follow from it by walking. Ref: megatron/core/pipeline_parallel/schedules.py
/// (get_schedule_table, warm-up counts), combined_1f1b.py.
#include <functional>
#include <vector>

namespace moecast {

struct ScheduleShape {
  int pp = 1, vpp = 1;
  int microbatches = 1;  ///< M per data-parallel rank
  int group = 1;         ///< microbatch_group_size_per_vp_stage; pp by default
  bool overlap = false;  ///< EP overlap: steady steps run one forward and one backward together
  bool operator==(const ScheduleShape&) const = default;
};

struct ScheduleOp {
  enum class Kind : unsigned char { forward, backward, both } kind = Kind::forward;
  int forward_chunk = 0, forward_microbatch = 0;    ///< forward, both
  int backward_chunk = 0, backward_microbatch = 0;  ///< backward, both
};

/// Number of warm-up forwards (in virtual microbatches when vpp > 1).
int warmup_count(const ScheduleShape& s, int rank);
/// The whole order of one rank.
std::vector<ScheduleOp> rank_order(const ScheduleShape& s, int rank);

/// Seconds that every piece takes on every rank.
struct ScheduleTimes {
  std::vector<double> forward, backward;  ///< [rank * vpp + chunk]
  std::vector<double>
      both;        ///< [(rank * vpp + forward chunk) * vpp + backward chunk]; empty without overlap
  double p2p = 0;  ///< one transfer between neighbours
  bool p2p_blocks = false;  ///< the sender waits for the transfer (1F1B without overlap)
};

struct RankTimeline {
  double end = 0;                         ///< of the last operation
  double busy = 0;                        ///< sum of its operations
  double p2p_blocked = 0;                 ///< waiting inside its own transfers
  std::vector<double> last_backward_end;  ///< per chunk
};
struct Walk {
  std::vector<RankTimeline> ranks;
  double makespan = 0;
};
/// `visit` (optional) sees every operation with its start and end.
using ScheduleVisitor = std::function<void(int rank, const ScheduleOp&, double start, double end)>;
Walk walk(const ScheduleShape& s, const ScheduleTimes& t, const ScheduleVisitor& visit = {});

/// A lower bound of the makespan, admissible for every schedule here: the busy time of a rank
/// between the first forward that reaches it and the last backward that leaves it.
double makespan_bound(const ScheduleShape& s, const ScheduleTimes& t);

/// Microbatch-chunks alive on a rank: every distinct maximal vector (count per chunk) that the
/// order passes through. The peak of activations is the largest dot product with the bytes per
/// chunk.
std::vector<std::vector<int>> alive_vectors(const ScheduleShape& s, int rank);
/// The closed form for equal chunks: total chunks alive at the peak. Ref: the warm-up of
/// megatron/core/pipeline_parallel/schedules.py (1F1B and interleaved).
int alive_closed_form(const ScheduleShape& s, int rank);

}  // namespace moecast
