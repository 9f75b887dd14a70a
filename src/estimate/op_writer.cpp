#include <algorithm>
#include <cstdint>

#include "estimate/layer_ops.hpp"

namespace moecast {

LayerSpans layer_spans(const Problem& p, const ShardKey& k) {
  const Cluster& c = p.cluster;
  return {c.span(1, k.tp), c.span(k.tp, k.cp), c.span(k.etp, k.ep), c.span(1, k.etp),
          c.span(1, k.etp * k.ep)};
}

namespace {

constexpr std::size_t kUsualOps = 64;  ///< of one direction of a layer: more is slower, no more

Prices at_clock(Prices prices, double clock) {
  prices.clock = clock;
  return prices;
}

}  // namespace

OpWriter::OpWriter(const Problem& p, const ShardKey& k, double clock)
    : problem(p),
      key(k),
      dims(make_dims(p, k)),
      spans(layer_spans(p, k)),
      prices(at_clock(p.prices(), clock)) {
  ops_.forward.reserve(kUsualOps);
  backward_.reserve(kUsualOps);
  begin(Part::attention);
}

void OpWriter::begin(Part part, std::uint16_t recompute, std::uint8_t graph, bool shared) {
  tags_ = Op{};
  tags_.part = part;
  tags_.recompute = recompute;
  tags_.graph = graph;
  tags_.shared = shared;
  groups_.push_back(backward_.size());
}

void OpWriter::forward(const char* name, OpClass cls, Seconds gpu, double launches, bool sync) {
  Op op = tags_;
  op.name = name;
  op.cls = cls;
  op.gpu =
      gpu * (is_communication(cls) ? problem.ablation.communication : problem.ablation.compute);
  op.launches = static_cast<float>(launches);
  op.sync = sync;
  ops_.forward.push_back(op);
}

void OpWriter::backward(const char* name, OpClass cls, Seconds gpu, double launches, bool wgrad,
                        bool sync) {
  Op op = tags_;
  op.name = name;
  op.cls = cls;
  op.gpu =
      gpu * (is_communication(cls) ? problem.ablation.communication : problem.ablation.compute);
  op.launches = static_cast<float>(launches);
  op.wgrad = wgrad;
  op.sync = sync;
  op.recompute = 0;
  backward_.push_back(op);
}

LayerOps OpWriter::finish() {
  ops_.backward.reserve(backward_.size());
  auto end = backward_.end();
  for (auto group = groups_.rbegin(); group != groups_.rend(); ++group) {
    const auto begin = backward_.begin() + static_cast<std::ptrdiff_t>(*group);
    ops_.backward.insert(ops_.backward.end(), begin, end);
    end = begin;
  }
  return std::move(ops_);
}

double OpWriter::accumulate_bytes() const { return key.grad_dtype == DType::fp32 ? 8 : 4; }

double OpWriter::quantize_bytes() const {
  return moecast::quantize_bytes(key.precision, problem.system().gpu.compute_capability < 10);
}

void OpWriter::quantize(bool is_forward, double elements) {
  const Seconds time = prices.quantize(key.precision, elements * quantize_bytes());
  const double launches =
      problem.profile.calibration.host_quantize_launches * quantize_kernels(key.precision);
  if (is_forward) {
    forward("quantize", OpClass::quantize, time, launches);
  } else {
    backward("quantize", OpClass::quantize, time, launches);
  }
}

void OpWriter::tp_collective(bool is_forward, const char* name, Collective op, double bytes,
                             Seconds hidden_under) {
  if (key.tp <= 1) return;
  Seconds time = prices.collective(op, bytes, spans.tp);
  // user-buffer overlap: four pipelined splits, so a quarter stays exposed and the rest hides under
  // its GEMM
  if (key.tp_comm_overlap && key.sequence_parallel) time = max(time / 4, time - hidden_under);
  const double launches = problem.profile.calibration.host_collective_launches;
  if (is_forward) {
    forward(name, OpClass::tp_comm, time, launches);
  } else {
    backward(name, OpClass::tp_comm, time, launches);
  }
}

void OpWriter::sequence_gather(bool is_forward, const char* name, double bytes,
                               Seconds hidden_under) {
  tp_collective(is_forward, name, Collective::all_gather, bytes, hidden_under);
}

void OpWriter::sequence_scatter(bool is_forward, const char* name, double bytes,
                                Seconds hidden_under) {
  const Collective op = key.sequence_parallel ? Collective::reduce_scatter : Collective::all_reduce;
  tp_collective(is_forward, name, op, bytes, hidden_under);
}

void OpWriter::linear(const char* name, double rows, double n, double k, Split split,
                      bool quantised) {
  const bool low = quantised && low_precision();
  const Pipe pipe = low ? pipe_of(key.precision) : Pipe::bf16;
  const double n_local = split == Split::column ? n / dims.t : n;
  const double k_local = split == Split::row ? k / dims.t : k;
  const GemmShape shape{rows, n_local, k_local};
  const Seconds fwd = prices.gemm(pipe, shape, Pass::forward);
  const Seconds dgrad = prices.gemm(pipe, shape, Pass::dgrad);
  const Seconds wgrad = prices.gemm(pipe, shape, Pass::wgrad, accumulate_bytes());
  const double launches = problem.profile.calibration.host_linear_launches;

  if (low) {
    quantize(true,
             (split == Split::column && key.sequence_parallel ? rows / dims.t : rows) * k_local);
  }
  if (split == Split::column && key.sequence_parallel) {
    sequence_gather(true, "tp all-gather", rows * k * (low ? 1 : 2), fwd);
  }
  forward(name, OpClass::dense_gemm, fwd, launches);
  if (split == Split::row) sequence_scatter(true, "tp reduce-scatter", rows * n * 2, fwd);

  if (low) quantize(false, rows * n_local);
  if (split == Split::row && key.sequence_parallel)
    sequence_gather(false, "tp all-gather", rows * n * (low ? 1 : 2), dgrad);
  if (split == Split::column && key.sequence_parallel) {
    sequence_gather(false, "tp all-gather", rows * k * (low ? 1 : 2), dgrad);
  }
  backward(name, OpClass::dense_gemm, dgrad, launches);
  if (split == Split::column) sequence_scatter(false, "tp reduce-scatter", rows * k * 2, wgrad);
  backward(name, OpClass::dense_gemm, wgrad, launches, true);
}

void OpWriter::norm(double width, double rows) {
  forward("norm", OpClass::memory_bound, prices.stream(Stream::norm, 4 * width * rows, rows), 1.5);
  backward("norm", OpClass::memory_bound,
           prices.stream(Stream::norm_backward, 6 * width * rows, rows), 2.5);
}

void OpWriter::elementwise(const char* name, double forward_bytes, double backward_bytes,
                           double launches) {
  forward(name, OpClass::memory_bound, prices.elementwise(forward_bytes), launches);
  backward(name, OpClass::memory_bound, prices.elementwise(backward_bytes), launches);
}

void OpWriter::activation(const char* name, double forward_bytes, double backward_bytes,
                          double launches) {
  forward(name, OpClass::memory_bound, prices.stream(Stream::activation, forward_bytes), launches);
  backward(name, OpClass::memory_bound, prices.stream(Stream::activation, backward_bytes),
           launches);
}

void OpWriter::residual() {
  const double streams = std::max(1, problem.model.hyper_connections);
  const double bytes = 6 * dims.h * dims.n;
  if (streams <= 1) {
    elementwise("residual", bytes, bytes, 1);
    return;
  }
  // hyper-connections: every block mixes `streams` residual streams before and after itself
  // (Sinkhorn-normalised small matrices)
  elementwise("hyper-connection", bytes * streams, 2 * bytes * streams, 12);
}

}  // namespace moecast
