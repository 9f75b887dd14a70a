#include <algorithm>

#include "estimate/chunk_time.hpp"

namespace moecast {
namespace {

/// Issues operations in order; a run of operations that one graph captured costs a single replay.
class Issuer {
 public:
  Issuer(const Problem& p, const IssueFlags& f, double per_launch)
      : flags_(f),
        calibration_(p.profile.calibration),
        scale_(p.ablation.host * p.stack.host_factor),
        per_launch_(per_launch) {}

  void add(std::vector<IssuedOp>& out, const Op& op, bool recomputed) {
    IssuedOp issued;
    issued.name = op.name;
    issued.gpu = op.gpu.value;
    issued.launches = op.launches;
    issued.cls = op.cls;
    issued.part = op.part;
    issued.wgrad = op.wgrad;
    issued.sync = op.sync && !flags_.full_graph;
    issued.recomputed = recomputed;
    issued.shared = op.shared;
    const bool captured = flags_.full_graph || ((op.graph & flags_.graph) != 0 && !op.sync);
    if (!captured) {
      issued.host = op.launches * per_launch_ * scale_;
      in_graph_ = false;
    } else if (!in_graph_ && !flags_.full_graph) {
      issued.host = calibration_.graph_launch_us * 1e-6 * scale_;
      in_graph_ = true;
    }
    out.push_back(issued);
  }
  void next_layer() { in_graph_ = false; }

 private:
  const IssueFlags& flags_;
  const Calibration& calibration_;
  double scale_, per_launch_;
  bool in_graph_ = false;
};

bool runs_again(const Op& op, const IssueFlags& f) {
  return f.recompute_all || (op.recompute & f.recompute) != 0;
}

}  // namespace

void issue_forward(const Problem& p, const LayerOps& ops, const IssueFlags& f,
                   std::vector<IssuedOp>& issued) {
  issued.clear();
  issued.reserve(ops.forward.size());
  Issuer forward(p, f, p.profile.calibration.host_launch_us * 1e-6);
  for (const Op& op : ops.forward) forward.add(issued, op, false);
}

void issue_backward(const Problem& p, const LayerOps& ops, const IssueFlags& f,
                    std::vector<IssuedOp>& issued) {
  const Calibration& c = p.profile.calibration;
  const double forward_launch = c.host_launch_us * 1e-6;
  issued.clear();
  issued.reserve(ops.forward.size() + ops.backward.size());
  Issuer backward(p, f, forward_launch * c.host_backward_factor);
  Issuer again(p, f, forward_launch);  // recomputation runs Python modules again
  const bool whole_block =
      f.recompute_all || (f.recompute & (1u << static_cast<int>(RecomputeModule::moe))) != 0;
  if (whole_block) {
    for (const Op& op : ops.forward) {
      if (runs_again(op, f)) again.add(issued, op, true);
    }
  }
  // a module's output is refilled just before the backward of its part
  for (const Part part : {Part::combine, Part::experts, Part::dispatch, Part::attention}) {
    if (!whole_block) {
      for (const Op& op : ops.forward) {
        if (op.part == part && runs_again(op, f)) again.add(issued, op, true);
      }
    }
    for (const Op& op : ops.backward) {
      if (op.part == part) backward.add(issued, op, false);
    }
  }
}

IssuedLayer issue(const Problem& p, const LayerOps& ops, const IssueFlags& f) {
  IssuedLayer layer;
  issue_forward(p, ops, f, layer.forward);
  issue_backward(p, ops, f, layer.backward);
  return layer;
}

double Spent::compute() const {
  double sum = 0;
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    if (!is_communication(static_cast<OpClass>(i))) sum += gpu[i];
  }
  return sum;
}

double Spent::host_exposed() const {
  return std::max(0.0,
                  duration - compute() - ep_exposed - other_exposed - offload_exposed - dp_exposed);
}

Spent& Spent::operator+=(const Spent& o) {
  duration += o.duration;
  for (std::size_t i = 0; i < gpu.size(); ++i) gpu[i] += o.gpu[i];
  recompute += o.recompute;
  ep_exposed += o.ep_exposed;
  other_exposed += o.other_exposed;
  offload_exposed += o.offload_exposed;
  dp_exposed += o.dp_exposed;
  return *this;
}

Spent operator*(Spent s, double k) {
  s.duration *= k;
  for (double& g : s.gpu) g *= k;
  s.recompute *= k;
  s.ep_exposed *= k;
  s.other_exposed *= k;
  s.offload_exposed *= k;
  s.dp_exposed *= k;
  return s;
}

}  // namespace moecast
