// One stream behind one host queue.
#include <algorithm>
#include <limits>

#include "estimate/chunk_time.hpp"

namespace moecast {
namespace {

/// Clocks of the issuing thread and of the GPU's compute stream.
struct Queue {
  double host = 0, gpu = 0;
  double sync_cost = 0;
  double kernel_floor = 0;

  /// Issues an operation of `launches` kernels; returns when its GPU work starts (see
  /// chunk_time.hpp).
  double run(const IssuedOp& op, double gpu_time) {
    const double first_launch = host + op.host / std::max(1.0f, op.launches);
    host += op.host;
    const double start = std::max(gpu, first_launch);
    const double last = std::min(kernel_floor, gpu_time);
    gpu = std::max(start + gpu_time, host + last);
    if (op.sync) host = std::max(host, gpu) + sync_cost;
    return start;
  }
};

/// Fc1 of the shared experts runs beside dispatch, fc2 beside combine: seconds of an equal part of
/// their work beside each exchange of the list, whatever the launch order.
double beside_exchange(const std::vector<IssuedOp>& ops, bool shared_overlap) {
  if (!shared_overlap) return 0;
  double shared = 0;
  int exchanges = 0;
  for (const IssuedOp& op : ops) {
    if (op.shared) shared += op.gpu;
    if (op.cls == OpClass::ep_comm) ++exchanges;
  }
  return exchanges > 0 ? shared / exchanges : 0;
}

Queue make_queue(const Problem& p) {
  Queue q;
  q.sync_cost = p.profile.calibration.sync_us * 1e-6 * p.ablation.host;
  q.kernel_floor = p.profile.calibration.kernel_floor_us * 1e-6;
  return q;
}

struct Runner {
  Queue queue;
  Spent spent;
  bool shared_overlap = false;
  bool is_backward = false;
  std::vector<Placed>* record = nullptr;
  double origin = 0;

  void add(const IssuedOp& op) {
    if (op.shared && beside_ > 0) {  // runs on its own stream beside the communication
      queue.host += op.host;
      count(op);
      return;
    }
    const bool hides = op.cls == OpClass::ep_comm;
    const double gpu_time = hides ? std::max(op.gpu, beside_) : op.gpu;
    const double start = queue.run(op, gpu_time);
    count(op);
    if (hides) {
      spent.ep_exposed += std::max(0.0, op.gpu - beside_);
    } else if (is_communication(op.cls)) {
      spent.other_exposed += op.gpu;
    }
    if (record != nullptr) {
      record->push_back({op.name, hides, is_backward, start - origin, gpu_time});
    }
  }

  void run(const std::vector<IssuedOp>& ops) {
    beside_ = beside_exchange(ops, shared_overlap);
    for (const IssuedOp& op : ops) add(op);
  }

 private:
  void count(const IssuedOp& op) {
    spent.gpu[static_cast<std::size_t>(op.cls)] += op.gpu;
    if (op.recomputed) spent.recompute += op.gpu;
  }
  double beside_ = 0;  ///< seconds of shared experts that hide beside one exchange
};

Runner make_runner(const Problem& p, bool shared_overlap) {
  Runner r;
  r.shared_overlap = shared_overlap;
  r.queue = make_queue(p);
  return r;
}

Spent finish(Runner& r, double began) {
  Spent s = r.spent;
  s.duration = r.queue.gpu - began;
  r.spent = {};
  return s;
}

}  // namespace

QueueMap queue_map(const Problem& p, const std::vector<IssuedOp>& ops, bool shared_overlap) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const double beside = beside_exchange(ops, shared_overlap);
  Queue from_host = make_queue(p), from_gpu = from_host;
  from_host.gpu = from_gpu.host = kNever;
  for (const IssuedOp& op : ops) {
    if (op.shared && beside > 0) {
      from_host.host += op.host;
      from_gpu.host += op.host;
      continue;
    }
    const double gpu_time = op.cls == OpClass::ep_comm ? std::max(op.gpu, beside) : op.gpu;
    from_host.run(op, gpu_time);
    from_gpu.run(op, gpu_time);
  }
  return {{from_host.host, from_host.gpu}, {from_gpu.host, from_gpu.gpu}};
}

StageTime stage_time(const Problem& p, const IssuedStage& stage, bool drained, bool shared_overlap,
                     std::vector<Placed>* record) {
  Runner r = make_runner(p, shared_overlap);
  StageTime result;
  const int rounds = drained ? 1 : 2;
  for (int round = 0; round < rounds; ++round) {
    r.record = round == rounds - 1 ? record : nullptr;
    double began = r.queue.gpu;
    r.origin = began;
    r.is_backward = false;
    for (const IssuedLayer* layer : stage) r.run(layer->forward);
    result.forward = finish(r, began);
    if (drained) r.queue.host = r.queue.gpu = std::max(r.queue.host, r.queue.gpu);
    began = r.queue.gpu;
    r.origin = began;
    r.is_backward = true;
    for (auto layer = stage.rbegin(); layer != stage.rend(); ++layer) r.run((*layer)->backward);
    result.backward = finish(r, began);
    // a runaway host lead means nothing: only the queue depth of one round matters
    r.queue.host = std::max(r.queue.host, began);
  }
  return result;
}

}  // namespace moecast
