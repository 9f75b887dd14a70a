// Causal attention in FP32, quadratic in memory: the reference for a short sequence.
#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/kernels.hpp"

namespace moecast::cuda {
namespace {

/// Rows of head h of batch b: q and o have `heads`, k and v `kv_heads`.
__device__ std::size_t row_at(int b, int h, int i, int heads, int seq) {
  return (static_cast<std::size_t>(b) * heads + h) * seq + i;
}

/// A thread an element: f(b, h, i, j) with i < seq and j < width.
template <typename F>
__global__ void each(int batch, int heads, int seq, int width, F f) {
  const std::size_t n = static_cast<std::size_t>(batch) * heads * seq * width;
  const std::size_t at = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  if (at >= n) return;
  const int j = static_cast<int>(at % width), i = static_cast<int>(at / width % seq);
  const int h = static_cast<int>(at / width / seq % heads),
            b = static_cast<int>(at / width / seq / heads);
  f(b, h, i, j);
}

template <typename F>
void launch(int batch, int heads, int seq, int width, cudaStream_t s, F f) {
  const std::size_t n = static_cast<std::size_t>(batch) * heads * seq * width;
  each<<<static_cast<unsigned>((n + 255) / 256), 256, 0, s>>>(batch, heads, seq, width, f);
  check(cudaGetLastError());
}

__device__ float dot(const bf16* a, const bf16* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += __bfloat162float(a[i]) * __bfloat162float(b[i]);
  return sum;
}

}  // namespace

void attention_reference(const AttentionShape& shape, const bf16* q, const bf16* k, const bf16* v,
                         float* p, float* o, cudaStream_t s) {
  const AttentionShape t = shape;
  const int group = t.heads / t.kv_heads;
  const float scale = rsqrtf(static_cast<float>(t.qk_dim));
  launch(t.batch, t.heads, t.seq, t.seq, s, [=] __device__(int b, int h, int i, int j) {
    const std::size_t qi = row_at(b, h, i, t.heads, t.seq),
                      kj = row_at(b, h / group, j, t.kv_heads, t.seq);
    p[qi * t.seq + j] =
        j > i ? -1e30f : scale * dot(q + qi * t.qk_dim, k + kj * t.qk_dim, t.qk_dim);
  });
  launch(t.batch, t.heads, t.seq, 1, s, [=] __device__(int b, int h, int i, int) {
    float* row = p + row_at(b, h, i, t.heads, t.seq) * t.seq;
    float top = row[0], sum = 0;
    for (int j = 1; j <= i; ++j) top = fmaxf(top, row[j]);
    for (int j = 0; j < t.seq; ++j) sum += row[j] = j > i ? 0.f : expf(row[j] - top);
    for (int j = 0; j <= i; ++j) row[j] /= sum;
  });
  launch(t.batch, t.heads, t.seq, t.v_dim, s, [=] __device__(int b, int h, int i, int d) {
    const std::size_t qi = row_at(b, h, i, t.heads, t.seq),
                      v0 = row_at(b, h / group, 0, t.kv_heads, t.seq);
    float sum = 0;
    for (int j = 0; j <= i; ++j)
      sum += p[qi * t.seq + j] * __bfloat162float(v[(v0 + j) * t.v_dim + d]);
    o[qi * t.v_dim + d] = sum;
  });
}

void attention_reference_backward(const AttentionShape& shape, const bf16* q, const bf16* k,
                                  const bf16* v, const float* p, const float* o, const bf16* d_o,
                                  float* dp, float* dq, float* dk, float* dv, cudaStream_t s) {
  const AttentionShape t = shape;
  const int group = t.heads / t.kv_heads;
  const float scale = rsqrtf(static_cast<float>(t.qk_dim));
  launch(t.batch, t.heads, t.seq, t.seq, s, [=] __device__(int b, int h, int i, int j) {
    const std::size_t qi = row_at(b, h, i, t.heads, t.seq),
                      vj = row_at(b, h / group, j, t.kv_heads, t.seq);
    float sum = 0;
    for (int d = 0; d < t.v_dim; ++d)
      sum += __bfloat162float(d_o[qi * t.v_dim + d]) *
             (__bfloat162float(v[vj * t.v_dim + d]) - o[qi * t.v_dim + d]);
    dp[qi * t.seq + j] = p[qi * t.seq + j] * sum * scale;
  });
  launch(t.batch, t.heads, t.seq, t.qk_dim, s, [=] __device__(int b, int h, int i, int d) {
    const std::size_t qi = row_at(b, h, i, t.heads, t.seq),
                      k0 = row_at(b, h / group, 0, t.kv_heads, t.seq);
    float sum = 0;
    for (int j = 0; j <= i; ++j)
      sum += dp[qi * t.seq + j] * __bfloat162float(k[(k0 + j) * t.qk_dim + d]);
    dq[qi * t.qk_dim + d] = sum;
  });
  // Heads that share a key and value add up.
  const auto key_side = [&](const float* weight, const bf16* rows, int dim, float* out) {
    launch(t.batch, t.kv_heads, t.seq, dim, s, [=] __device__(int b, int kv, int j, int d) {
      float sum = 0;
      for (int h = kv * group; h < (kv + 1) * group; ++h) {
        const std::size_t q0 = row_at(b, h, 0, t.heads, t.seq);
        for (int i = j; i < t.seq; ++i)
          sum += weight[(q0 + i) * t.seq + j] * __bfloat162float(rows[(q0 + i) * dim + d]);
      }
      out[row_at(b, kv, j, t.kv_heads, t.seq) * dim + d] = sum;
    });
  };
  key_side(dp, q, t.qk_dim, dk);
  key_side(p, d_o, t.v_dim, dv);
}

}  // namespace moecast::cuda
