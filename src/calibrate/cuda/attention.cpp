// Causal attention through cuDNN's fused engines. Operation lists: the forward and backward
// patterns that cuDNN's support matrix documents for its flash-attention engines (cuDNN graph API,
// "Fused attention").
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>

#include "calibrate/cuda/cudnn_graph.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/sections.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {
namespace {

using T = CudnnGraph::Tensor;
constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;
constexpr auto kFloat = CUDNN_DATA_FLOAT;

/// [batch][head][seq][dim], and the same memory seen as [batch][head][dim][seq].
struct View {
  Dims dims, strides;
  View(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d)
      : dims{b, h, s, d}, strides{h * s * d, s * d, d, 1} {}
  [[nodiscard]] View transposed() const {
    View v = *this;
    std::swap(v.dims[2], v.dims[3]);
    std::swap(v.strides[2], v.strides[3]);
    return v;
  }
};

T input(CudnnGraph& g, const View& v, cudnnDataType_t type = kBf16) {
  return g.input(v.dims, v.strides, type);
}

/// Scores above the diagonal become very negative.
T causal(CudnnGraph& g, T scores, const Dims& dims) {
  const T row = g.temporary(dims, CUDNN_DATA_INT32), col = g.temporary(dims, CUDNN_DATA_INT32);
  const T keep = g.temporary(dims, CUDNN_DATA_BOOLEAN), out = g.temporary(dims);
  g.index(scores, 2, row);
  g.index(scores, 3, col);
  g.pointwise(CUDNN_POINTWISE_CMP_GE, {row, col}, keep, CUDNN_DATA_BOOLEAN);
  g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, g.constant(-FLT_MAX), keep}, out);
  return out;
}

struct Sizes {
  std::int64_t b, h, kv, s, d, dv;
  explicit Sizes(const AttentionGrid& a)
      : b(a.batch), h(a.heads), kv(a.kv_heads), s(a.seq), d(a.qk_dim), dv(a.v_dim) {}
  [[nodiscard]] float scale() const { return 1.f / std::sqrt(static_cast<float>(d)); }
};

/// Inputs in order: q, k, v, o, statistics (maximum + log of the sum).
void build_forward(CudnnGraph& g, const Sizes& z) {
  const Dims scores{z.b, z.h, z.s, z.s}, per_row{z.b, z.h, z.s, 1};
  const T q = input(g, {z.b, z.h, z.s, z.d}), k = input(g, View(z.b, z.kv, z.s, z.d).transposed()),
          v = input(g, {z.b, z.kv, z.s, z.dv});
  const T o = input(g, {z.b, z.h, z.s, z.dv}), statistics = input(g, {z.b, z.h, z.s, 1}, kFloat);
  const T product = g.temporary(scores), scaled = g.temporary(scores);
  g.matmul(q, k, product);
  g.pointwise(CUDNN_POINTWISE_MUL, {product, g.constant(z.scale())}, scaled);
  const T masked = causal(g, scaled, scores);
  const T top = g.temporary(per_row), below = g.temporary(scores),
          exponential = g.temporary(scores), sum = g.temporary(per_row);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, top);
  g.pointwise(CUDNN_POINTWISE_SUB, {masked, top}, below);
  g.pointwise(CUDNN_POINTWISE_EXP, below, exponential);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
  const T log_sum = g.temporary(per_row), probabilities = g.temporary(scores, kBf16);
  g.pointwise(CUDNN_POINTWISE_LOG, sum, log_sum);
  g.pointwise(CUDNN_POINTWISE_ADD, {top, log_sum}, statistics);
  g.pointwise(CUDNN_POINTWISE_DIV, {exponential, sum}, probabilities);
  g.matmul(probabilities, v, o);
}

/// weights^T x rows, summed over the heads that share a key: dK from dS and Q, dV from P and dO.
void key_gradient(CudnnGraph& g, const Sizes& z, T weights, T rows, std::int64_t dim, T out) {
  const T transposed =
      g.temporary({z.b, z.h, z.s, z.s}, kBf16, {z.h * z.s * z.s, z.s * z.s, 1, z.s});
  g.reshape(weights, transposed);
  if (z.h == z.kv) return g.matmul(transposed, rows, out);
  const T all_heads = g.temporary({z.b, z.h, z.s, dim}, kBf16);
  g.matmul(transposed, rows, all_heads);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, all_heads, out);
}

/// Inputs in order: q, k, v, o, statistics, do, dq, dk, dv, row sums (FP32 scratch), dq sums (FP32
/// scratch).
void build_backward(CudnnGraph& g, const Sizes& z) {
  const Dims scores{z.b, z.h, z.s, z.s}, per_row{z.b, z.h, z.s, 1};
  const View key(z.b, z.kv, z.s, z.d);
  const T q = input(g, {z.b, z.h, z.s, z.d}), k = input(g, key.transposed()),
          v = input(g, View(z.b, z.kv, z.s, z.dv).transposed());
  const T o = input(g, {z.b, z.h, z.s, z.dv}), statistics = input(g, {z.b, z.h, z.s, 1}, kFloat),
          d_o = input(g, {z.b, z.h, z.s, z.dv});
  const T dq = input(g, {z.b, z.h, z.s, z.d}), dk = input(g, key),
          dv = input(g, {z.b, z.kv, z.s, z.dv});
  const T row_sum = input(g, {z.b, z.h, z.s, 1}, kFloat),
          dq_sum = input(g, {z.b, z.h, z.s, z.d}, kFloat);
  const T scale = g.constant(z.scale());

  const T product = g.temporary({z.b, z.h, z.s, z.dv}), sum = g.temporary(per_row);
  g.pointwise(CUDNN_POINTWISE_MUL, {d_o, o}, product);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
  g.pointwise(CUDNN_POINTWISE_MUL, {sum, g.constant(1.f)}, row_sum);

  const T raw = g.temporary(scores), scaled = g.temporary(scores), shifted = g.temporary(scores),
          p = g.temporary(scores);
  g.matmul(q, k, raw);
  g.pointwise(CUDNN_POINTWISE_MUL, {raw, scale}, scaled);
  g.pointwise(CUDNN_POINTWISE_SUB, {scaled, statistics}, shifted);
  g.pointwise(CUDNN_POINTWISE_EXP, causal(g, shifted, scores), p);
  key_gradient(g, z, p, d_o, z.dv, dv);

  const T dp = g.temporary(scores), centred = g.temporary(scores), weighted = g.temporary(scores),
          ds = g.temporary(scores, kBf16);
  g.matmul(d_o, v, dp);
  g.pointwise(CUDNN_POINTWISE_SUB, {dp, row_sum}, centred);
  g.pointwise(CUDNN_POINTWISE_MUL, {centred, p}, weighted);
  g.pointwise(CUDNN_POINTWISE_MUL, {weighted, scale}, ds);
  key_gradient(g, z, ds, q, z.d, dk);

  const T key_again = g.temporary(key.dims, kBf16, key.strides);
  g.reshape(k, key_again);
  g.matmul(ds, key_again, dq_sum);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sum, dq);
}

/// Device memory of one set of operands.
struct Operands {
  bf16 *q, *k, *v, *o, *d_o, *dq, *dk, *dv;
  float *statistics, *row_sum, *dq_sum;
  std::vector<void*> forward() const { return {q, k, v, o, statistics}; }
  std::vector<void*> backward() const {
    return {q, k, v, o, statistics, d_o, dq, dk, dv, row_sum, dq_sum};
  }
};

Operands take(Gpu& gpu, const Sizes& z, bool is_backward, unsigned seed) {
  const auto query = static_cast<std::size_t>(z.b * z.h * z.s),
             key = static_cast<std::size_t>(z.b * z.kv * z.s);
  const auto d = static_cast<std::size_t>(z.d), dv = static_cast<std::size_t>(z.dv);
  Arena& a = *gpu.arena;
  Operands x{};
  x.q = a.take<bf16>(query * d);
  x.k = a.take<bf16>(key * d);
  x.v = a.take<bf16>(key * dv);
  x.o = a.take<bf16>(query * dv);
  x.statistics = a.take<float>(query);
  fill_normal(x.q, query * d, seed, gpu.stream);
  fill_normal(x.k, key * d, seed + 1, gpu.stream);
  fill_normal(x.v, key * dv, seed + 2, gpu.stream);
  check(cudaMemsetAsync(x.o, 0xff, query * dv * sizeof(bf16), gpu.stream));
  if (!is_backward) return x;
  x.d_o = a.take<bf16>(query * dv);
  x.dq = a.take<bf16>(query * d);
  x.dk = a.take<bf16>(key * d);
  x.dv = a.take<bf16>(key * dv);
  x.row_sum = a.take<float>(query);
  x.dq_sum = a.take<float>(query * d);
  fill_normal(x.d_o, query * dv, seed + 3, gpu.stream);
  for (auto [p, n] : {std::pair{x.dq, query * d}, {x.dk, key * d}, {x.dv, key * dv}})
    check(cudaMemsetAsync(p, 0xff, n * sizeof(bf16), gpu.stream));
  return x;
}

/// Both passes of one shape, planned.
struct Attention {
  Sizes sizes;
  CudnnGraph forward, backward;
  void* workspace = nullptr;

  Attention(Gpu& gpu, const AttentionGrid& shape, bool is_backward) : sizes(shape) {
    build_forward(forward, sizes);
    forward.build(gpu.cudnn);
    std::size_t bytes = forward.workspace_bytes();
    if (is_backward) {
      build_backward(backward, sizes);
      backward.build(gpu.cudnn);
      bytes = std::max(bytes, backward.workspace_bytes());
    }
    workspace = bytes == 0 ? nullptr : gpu.arena->take(bytes);
  }
};

double error_of(Gpu& gpu, const bf16* out, const float* reference, std::size_t n) {
  const auto array = [](const void* data, int type) {
    return Strided{data, type, 0, 1, nullptr, 1, 1, 0, 0};
  };
  compare(array(out, 0), array(reference, 3), n, gpu.error_sums, gpu.stream);
  return require_error_below(gpu.relative_error(), 2e-2);
}

/// The same heads on a short sequence against the quadratic reference.
double verify(Gpu& gpu, AttentionGrid shape, bool is_backward) {
  constexpr int kSeq = 384, kHeads = 8;
  const int group = std::min(shape.heads / shape.kv_heads, kHeads);
  shape = {1, kSeq, kHeads, kHeads / group, shape.qk_dim, shape.v_dim};
  const Attention attention(gpu, shape, is_backward);
  const Operands x = take(gpu, attention.sizes, is_backward, 77);
  const AttentionShape z{shape.batch,    shape.seq,    shape.heads,
                         shape.kv_heads, shape.qk_dim, shape.v_dim};
  const std::size_t query = static_cast<std::size_t>(z.heads) * z.seq,
                    key = static_cast<std::size_t>(z.kv_heads) * z.seq;
  auto* p = gpu.arena->take<float>(query * z.seq);
  auto* o = gpu.arena->take<float>(query * z.v_dim);
  attention.forward.run(gpu.cudnn, x.forward(), attention.workspace);
  attention_reference(z, x.q, x.k, x.v, p, o, gpu.stream);
  double worst = error_of(gpu, x.o, o, query * z.v_dim);
  if (!is_backward) return worst;
  auto* dp = gpu.arena->take<float>(query * z.seq);
  auto* dq = gpu.arena->take<float>(query * z.qk_dim);
  auto* dk = gpu.arena->take<float>(key * z.qk_dim);
  auto* dv = gpu.arena->take<float>(key * z.v_dim);
  attention.backward.run(gpu.cudnn, x.backward(), attention.workspace);
  attention_reference_backward(z, x.q, x.k, x.v, p, o, x.d_o, dp, dq, dk, dv, gpu.stream);
  worst = std::max(worst, error_of(gpu, x.dq, dq, query * z.qk_dim));
  worst = std::max(worst, error_of(gpu, x.dk, dk, key * z.qk_dim));
  return std::max(worst, error_of(gpu, x.dv, dv, key * z.v_dim));
}

Work prepare(Gpu& gpu, const AttentionGrid& shape, bool is_backward) {
  Work work;
  const auto attention = std::make_shared<Attention>(gpu, shape, is_backward);
  const Sizes& z = attention->sizes;
  work.copies =
      gpu.copies_beyond_l2(static_cast<std::size_t>(z.b * z.s * (z.h + z.kv) * (z.d + z.dv) * 2));
  std::vector<Operands> sets;
  for (int i = 0; i < work.copies; ++i) {
    sets.push_back(take(gpu, z, is_backward, static_cast<unsigned>(4 * i + 1)));
    attention->forward.run(gpu.cudnn, sets.back().forward(), attention->workspace);
  }
  work.launch = [&gpu, attention, sets, is_backward](cudaStream_t s, int copy) {
    check(cudnnSetStream(gpu.cudnn, s));
    const Operands& x = sets[static_cast<std::size_t>(copy)];
    if (is_backward)
      attention->backward.run(gpu.cudnn, x.backward(), attention->workspace);
    else
      attention->forward.run(gpu.cudnn, x.forward(), attention->workspace);
  };
  return work;
}

}  // namespace

void measure_attention(Bench& bench) {
  std::map<std::tuple<int, int, int, bool>, double> errors;  // of these head widths and groups
  const auto checked = [&](const AttentionGrid& a, bool is_backward) {
    const auto [at, is_new] =
        errors.try_emplace({a.heads / a.kv_heads, a.qk_dim, a.v_dim, is_backward}, 0.0);
    if (is_new) at->second = verify(bench.gpu, a, is_backward);
    bench.gpu.arena->reset();
    Work work = prepare(bench.gpu, a, is_backward);
    work.rel_error = at->second;
    return work;
  };
  for (const AttentionGrid& a : attention_shapes(bench.grid)) {
    for (const bool is_backward : {false, true}) {
      const Kernel kernel{"attention",
                          {{"batch", double(a.batch)},
                           {"seq", double(a.seq)},
                           {"heads", double(a.heads)},
                           {"kv_heads", double(a.kv_heads)},
                           {"qk_dim", double(a.qk_dim)},
                           {"v_dim", double(a.v_dim)},
                           {"precision", "bf16"},
                           {"pass", is_backward ? "backward" : "forward"}},
                          "cudnn"};
      bench.measure(kernel, {Mode::sustained}, [&] { return checked(a, is_backward); });
    }
  }
}

}  // namespace moecast::cuda
