// Copy, residual, rotary embedding, optimizer, router and loss with their references.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "calibrate/cuda/host_check.hpp"
#include "calibrate/cuda/memory_kernels.hpp"

namespace moecast::cuda {

template <>
bf16* filled<bf16>(Gpu& gpu, std::size_t n, unsigned seed, float sigma) {
  auto* p = gpu.arena->take<bf16>(n);
  fill_normal(p, n, seed, gpu.stream, sigma);
  return p;
}
template <>
float* filled<float>(Gpu& gpu, std::size_t n, unsigned seed, float sigma) {
  auto* p = gpu.arena->take<float>(n);
  fill_normal(p, n, seed, gpu.stream, sigma);
  return p;
}

namespace {

std::size_t count(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

Instance make_copy(Gpu& gpu, int rows, int cols) {
  const std::size_t n = count(rows, cols);
  const bf16* x = filled<bf16>(gpu, n, 1);
  bf16* y = filled<bf16>(gpu, n, 2);
  return {[=](cudaStream_t s) { copy(x, y, n, s); },
          [=, &gpu] { return rel_error(to_host(gpu, y, n), to_host(gpu, x, n)); }};
}

Instance make_residual(Gpu& gpu, int rows, int cols) {
  const std::size_t n = count(rows, cols);
  const bf16 *x = filled<bf16>(gpu, n, 1), *y = filled<bf16>(gpu, n, 2);
  bf16* z = filled<bf16>(gpu, n, 3);
  return {[=](cudaStream_t s) { residual(x, y, z, n, s); },
          [=, &gpu] {
            Numbers want = to_host(gpu, x, n);
            const Numbers other = to_host(gpu, y, n);
            for (std::size_t i = 0; i < n; ++i) want[i] += other[i];
            return rel_error(to_host(gpu, z, n), want);
          }};
}

Instance make_rope(Gpu& gpu, int rows, int cols) {
  constexpr std::size_t kHalf = 64;
  const std::size_t n = count(rows, cols), width = static_cast<std::size_t>(cols),
                    angles = static_cast<std::size_t>(rows) * kHalf;
  const bf16* x = filled<bf16>(gpu, n, 1);
  const float* table = filled<float>(gpu, 2 * angles, 2);
  bf16* y = filled<bf16>(gpu, n, 3);
  return {
      [=](cudaStream_t s) { rope(x, reinterpret_cast<const float2*>(table), y, rows, cols, s); },
      [=, &gpu] {
        const Numbers in = to_host(gpu, x, n), cs = to_host(gpu, table, 2 * angles);
        Numbers want(n);
        for (std::size_t i = 0; i < n; ++i) {
          const std::size_t r = i / width, d = i % width % (2 * kHalf),
                            at = 2 * (r * kHalf + d % kHalf);
          want[i] = d < kHalf ? in[i] * cs[at] - in[i + kHalf] * cs[at + 1]
                              : in[i] * cs[at] + in[i - kHalf] * cs[at + 1];
        }
        return rel_error(to_host(gpu, y, n), want);
      }};
}

Instance make_adam(Gpu& gpu, int rows, int cols) {
  const std::size_t n = count(rows, cols);
  const float* g = filled<float>(gpu, n, 1);
  float *p = filled<float>(gpu, n, 2), *m = filled<float>(gpu, n, 3),
        *v = gpu.arena->take<float>(n);
  auto* w = gpu.arena->take<bf16>(n);
  check(cudaMemsetAsync(v, 0, n * sizeof(float), gpu.stream));
  const auto before = std::make_shared<std::array<Numbers, 2>>();
  if (n < (1u << 23)) *before = {to_host(gpu, p, n), to_host(gpu, m, n)};
  return {
      [=](cudaStream_t s) { adam(g, p, m, v, w, n, s); },
      [=, &gpu] {
        const Numbers grad = to_host(gpu, g, n);
        Numbers want(n), want_m(n);
        for (std::size_t i = 0; i < n; ++i) {
          want_m[i] = 0.9 * (*before)[1][i] + 0.1 * grad[i];
          const double second = 0.05 * grad[i] * grad[i];
          want[i] = (*before)[0][i] -
                    1e-4 * (want_m[i] / (std::sqrt(second) + 1e-8) + 0.1 * (*before)[0][i]);
        }
        return std::max({rel_error(to_host(gpu, p, n), want), rel_error(to_host(gpu, m, n), want_m),
                         rel_error(to_host(gpu, w, n), want)});
      }};
}

Instance make_router(Gpu& gpu, int rows, int experts) {
  constexpr int kTopk = 8;
  const std::size_t n = count(rows, experts), width = static_cast<std::size_t>(experts);
  const float* logits = filled<float>(gpu, n, 1);
  auto* probs = gpu.arena->take<float>(n);
  auto* map = gpu.arena->take<std::uint8_t>(n);
  return {[=](cudaStream_t s) { router(logits, probs, map, rows, experts, kTopk, s); },
          [=, &gpu] {
            const Numbers in = to_host(gpu, logits, n);
            Numbers want(n, 0.0), order(width), chosen(n, 0.0);
            for (std::size_t r = 0; r < n; r += width) {
              double sum = 0;
              for (std::size_t e = 0; e < width; ++e) sum += std::exp(in[r + e]);
              std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(r), width, order.begin());
              std::nth_element(order.begin(), order.begin() + kTopk - 1, order.end(),
                               std::greater<>());
              for (std::size_t e = 0; e < width; ++e) {
                if (in[r + e] < order[kTopk - 1]) continue;
                want[r + e] = std::exp(in[r + e]) / sum;
                chosen[r + e] = 1;
              }
            }
            return std::max(rel_error(to_host(gpu, probs, n), want),
                            rel_error(to_host(gpu, map, n), chosen));
          }};
}

Instance make_loss(Gpu& gpu, int rows, int vocab) {
  const std::size_t n = count(rows, vocab), width = static_cast<std::size_t>(vocab),
                    height = static_cast<std::size_t>(rows);
  const bf16* logits = filled<bf16>(gpu, n, 1);
  auto* target = gpu.arena->take<int>(height);
  fill_int(target, height, vocab, 2, gpu.stream);
  auto* loss = gpu.arena->take<float>(height);
  bf16* grad = filled<bf16>(gpu, n, 3);
  return {[=](cudaStream_t s) { cross_entropy(logits, target, loss, grad, rows, vocab, s); },
          [=, &gpu] {
            const Numbers in = to_host(gpu, logits, n), wanted = to_host(gpu, target, height);
            Numbers want(n), want_loss(height);
            for (std::size_t r = 0; r < height; ++r) {
              double sum = 0;
              for (std::size_t c = 0; c < width; ++c) sum += std::exp(in[r * width + c]);
              const auto at = static_cast<std::size_t>(wanted[r]);
              want_loss[r] = std::log(sum) - in[r * width + at];
              for (std::size_t c = 0; c < width; ++c)
                want[r * width + c] = std::exp(in[r * width + c]) / sum - (c == at ? 1 : 0);
            }
            return std::max(rel_error(to_host(gpu, grad, n), want),
                            rel_error(to_host(gpu, loss, height), want_loss));
          }};
}

}  // namespace

std::vector<MemoryKernel> elementwise_kernels() {
  return {{"copy", {}, "bf16", 4, make_copy},
          {"residual", {}, "bf16", 6, make_residual},
          {"rope", {}, "bf16", 4, make_rope}};
}

std::vector<MemoryKernel> wide_kernels() {
  return {{"adam", {}, "fp32", 30, make_adam},
          {"router", {{"topk", 8.0}}, "fp32", 9, make_router},
          {"cross_entropy", {}, "bf16", 6, make_loss}};
}

}  // namespace moecast::cuda
