// What an exact evaluation says about time: breakdown of the critical rank, groups, trace.
#include <algorithm>
#include <cmath>

#include "estimate/exact.hpp"
#include "layout/rank_groups.hpp"

namespace moecast {
namespace {

std::size_t index_of(OpClass c) { return static_cast<std::size_t>(c); }

/// The rank with the least waiting: the one whose work the step is made of.
int critical_rank(const Walk& w) {
  const auto busiest = std::max_element(w.ranks.begin(), w.ranks.end(),
                                        [](const RankTimeline& a, const RankTimeline& b) {
                                          return a.busy + a.p2p_blocked < b.busy + b.p2p_blocked;
                                        });
  return static_cast<int>(busiest - w.ranks.begin());
}

TimeBreakdown breakdown(const Spent& s, const RankTimeline& rank, const TailCosts& costs,
                        double reduced, const StepTail& tail) {
  TimeBreakdown t;
  t.compute = seconds(s.compute());
  t.ep_comm_exposed = seconds(s.ep_exposed);
  t.ep_comm_total = seconds(s.gpu[index_of(OpClass::ep_comm)]);
  t.tp_comm_exposed = seconds(s.gpu[index_of(OpClass::tp_comm)]);
  t.cp_comm_exposed = seconds(s.gpu[index_of(OpClass::cp_comm)]);
  t.pp_comm_exposed = seconds(rank.p2p_blocked);
  t.dp_comm_exposed =
      seconds(std::max(0.0, reduced - rank.end) + tail.gather_exposed + s.dp_exposed);
  t.dp_comm_total = std::max(t.dp_comm_exposed, seconds(costs.reduce + costs.gather));
  t.host_exposed = seconds(s.host_exposed() + s.offload_exposed + tail.fixed);
  t.optimizer = seconds(tail.optimizer);
  t.recompute = seconds(s.recompute);
  t.grouped_gemm = seconds(s.gpu[index_of(OpClass::grouped_gemm)]);
  t.dense_gemm = seconds(s.gpu[index_of(OpClass::dense_gemm)]);
  t.attention = seconds(s.gpu[index_of(OpClass::attention)]);
  t.permute = seconds(s.gpu[index_of(OpClass::permute)]);
  t.memory_bound = seconds(s.gpu[index_of(OpClass::memory_bound)]);
  t.quantize = seconds(s.gpu[index_of(OpClass::quantize)]);
  const Seconds known = t.compute + t.ep_comm_exposed + t.tp_comm_exposed + t.cp_comm_exposed +
                        t.pp_comm_exposed + t.dp_comm_exposed + t.host_exposed + t.optimizer;
  t.pipeline_bubble =
      seconds(tail.step) - known;  // waiting for other ranks: the rest by definition
  if (std::abs(t.pipeline_bubble.value) < 1e-9 * tail.step) t.pipeline_bubble = {};
  return t;
}

std::string piece_name(const ScheduleOp& op) {
  const auto f =
      "F" + std::to_string(op.forward_microbatch) + "." + std::to_string(op.forward_chunk);
  const auto b =
      "B" + std::to_string(op.backward_microbatch) + "." + std::to_string(op.backward_chunk);
  if (op.kind == ScheduleOp::Kind::forward) return f;
  return op.kind == ScheduleOp::Kind::backward ? b : f + " + " + b;
}

}  // namespace

namespace {

/// Boxes of the schedule, and kernel by kernel the first few pieces of each kind on every rank.
class Tracer {
 public:
  Tracer(const Problem& p, const Layout& l, const std::vector<IssuedStage>& stages,
         const IssueFlags& flags, bool drained, std::vector<TraceEvent>& out)
      : p_(p),
        l_(l),
        stages_(stages),
        flags_(flags),
        drained_(drained),
        out_(out),
        shown_(static_cast<std::size_t>(l.pp) * 3, 0) {}

  void piece(int rank, const ScheduleOp& op, double start, double end) {
    out_.push_back({rank, "schedule", piece_name(op), "", seconds(start), seconds(end - start)});
    int& shown = shown_[static_cast<std::size_t>(rank) * 3 + static_cast<std::size_t>(op.kind)];
    if (shown++ >= 2) return;
    std::vector<Placed> placed;
    const IssuedStage& f = stages_[static_cast<std::size_t>(rank * l_.vpp + op.forward_chunk)];
    const IssuedStage& b = stages_[static_cast<std::size_t>(rank * l_.vpp + op.backward_chunk)];
    if (op.kind == ScheduleOp::Kind::both) {
      overlapped_time(p_, f, b, flags_, &placed);
    } else {
      stage_time(p_, op.kind == ScheduleOp::Kind::forward ? f : b, drained_, flags_.shared_overlap,
                 &placed);
    }
    for (const Placed& k : placed) {
      if (op.kind == ScheduleOp::Kind::forward && k.backward) continue;
      if (op.kind == ScheduleOp::Kind::backward && !k.backward) continue;
      out_.push_back({rank, k.comm_stream ? "communication" : "compute", k.name,
                      k.backward ? "backward" : "forward", seconds(start + k.start),
                      seconds(k.duration)});
    }
  }

 private:
  const Problem& p_;
  const Layout& l_;
  const std::vector<IssuedStage>& stages_;
  const IssueFlags& flags_;
  bool drained_;
  std::vector<TraceEvent>& out_;
  std::vector<int> shown_;
};

}  // namespace

void Evaluator::describe(const Layout& l, const MeshTables& m, const Exact& e, const Detail& d,
                         Estimate& out, bool trace) const {
  out.step_time = seconds(e.tail.step);
  out.critical_rank = critical_rank(e.walk);
  Tracer tracer(p_, l, d.stages, e.flags, l.pp > 1 && l.vpp == 1, out.trace);
  Spent spent;
  walk(e.shape, e.times, [&](int rank, const ScheduleOp& op, double start, double end) {
    if (trace) tracer.piece(rank, op, start, end);
    if (rank != out.critical_rank) return;
    const std::size_t f = static_cast<std::size_t>(rank * l.vpp + op.forward_chunk);
    const std::size_t b = static_cast<std::size_t>(rank * l.vpp + op.backward_chunk);
    if (op.kind == ScheduleOp::Kind::forward) spent += d.stage_times[f].forward;
    if (op.kind == ScheduleOp::Kind::backward) spent += d.stage_times[b].backward;
    if (op.kind == ScheduleOp::Kind::both)
      spent += d.both[f * l.vpp + static_cast<std::size_t>(op.backward_chunk)];
  });
  const auto rank = static_cast<std::size_t>(out.critical_rank);
  out.time =
      breakdown(spent, e.walk.ranks[rank], mesh_times_.costs[rank], e.tail.reduced[rank], e.tail);
  if (trace) {
    for (int r = 0; r < l.pp; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const double end = e.walk.ranks[i].end;
      out.trace.push_back(
          {r, "dp", "gradient reduction", "", seconds(end), seconds(e.tail.reduced[i] - end)});
      out.trace.push_back({r, "compute", "optimizer", "", seconds(e.tail.synced),
                           seconds(mesh_times_.costs[i].optimizer)});
      out.trace.push_back({r, "dp", "parameter gather", "",
                           seconds(e.tail.synced + e.tail.optimizer),
                           seconds(e.tail.gather_exposed)});
    }
  }
  out.run.pipeline_model_parallel_layout = m.plan().layout_string;
  for (const RankParams& params : m.params)
    out.params_per_rank_max = std::max(out.params_per_rank_max, params.total());
  for (const GroupName g : {GroupName::tp, GroupName::cp, GroupName::dp_cp, GroupName::pp,
                            GroupName::ep, GroupName::etp, GroupName::edp}) {
    const GroupShape shape = group_shape(g, l, p_.world);
    const GroupSpan& span = p_.cluster.span(shape.stride, shape.size);
    out.groups.push_back({to_string(g), shape.size, span.domains, span.bandwidth});
  }
}

}  // namespace moecast
