// RMSNorm and SwiGLU with their references.
#include "calibrate/cuda/host_check.hpp"
#include "calibrate/cuda/memory_kernels.hpp"

namespace moecast::cuda {
namespace {

std::size_t count(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Instance make_norm(Gpu& gpu, int rows, int cols) {
  const std::size_t n = count(rows, cols), width = static_cast<std::size_t>(cols);
  const bf16 *x = filled<bf16>(gpu, n, 1), *w = filled<bf16>(gpu, width, 2);
  bf16* y = filled<bf16>(gpu, n, 3);
  auto* rstd = gpu.arena->take<float>(static_cast<std::size_t>(rows));
  return {[=](cudaStream_t s) { rms_norm(x, w, y, rstd, rows, cols, s); },
          [=, &gpu] {
            const Numbers in = to_host(gpu, x, n), weight = to_host(gpu, w, width);
            Numbers want(n);
            for (std::size_t r = 0; r < n; r += width) {
              double squares = 0;
              for (std::size_t c = 0; c < width; ++c) squares += in[r + c] * in[r + c];
              const double scale = 1 / std::sqrt(squares / cols + 1e-6);
              for (std::size_t c = 0; c < width; ++c) want[r + c] = in[r + c] * scale * weight[c];
            }
            return rel_error(to_host(gpu, y, n), want);
          }};
}

Instance make_norm_backward(Gpu& gpu, int rows, int cols) {
  const std::size_t n = count(rows, cols), width = static_cast<std::size_t>(cols);
  const bf16 *dy = filled<bf16>(gpu, n, 1), *x = filled<bf16>(gpu, n, 2),
             *w = filled<bf16>(gpu, width, 3);
  bf16* dx = filled<bf16>(gpu, n, 4);
  auto* rstd = gpu.arena->take<float>(static_cast<std::size_t>(rows));
  auto* partial = gpu.arena->take<float>(static_cast<std::size_t>(rms_norm_blocks()) * width);
  auto* dw = gpu.arena->take<float>(width);
  rms_norm(x, w, dx, rstd, rows, cols, gpu.stream);
  return {
      [=](cudaStream_t s) { rms_norm_backward(dy, x, w, rstd, dx, partial, dw, rows, cols, s); },
      [=, &gpu] {
        const Numbers g = to_host(gpu, dy, n), in = to_host(gpu, x, n),
                      weight = to_host(gpu, w, width);
        Numbers want(n), want_w(width, 0.0);
        for (std::size_t r = 0; r < n; r += width) {
          double squares = 0, dot = 0;
          for (std::size_t c = 0; c < width; ++c) {
            squares += in[r + c] * in[r + c];
            dot += in[r + c] * g[r + c] * weight[c];
          }
          const double scale = 1 / std::sqrt(squares / cols + 1e-6),
                       mean = dot * scale * scale / cols;
          for (std::size_t c = 0; c < width; ++c) {
            want[r + c] = scale * (g[r + c] * weight[c] - in[r + c] * mean);
            want_w[c] += g[r + c] * in[r + c] * scale;
          }
        }
        return std::max(rel_error(to_host(gpu, dx, n), want),
                        rel_error(to_host(gpu, dw, width), want_w));
      }};
}

Instance make_swiglu(Gpu& gpu, int rows, int cols, bool has_probs) {
  const std::size_t n = count(rows, cols), width = static_cast<std::size_t>(cols);
  const bf16* x = filled<bf16>(gpu, 2 * n, 1);
  const float* probs = has_probs ? filled<float>(gpu, static_cast<std::size_t>(rows), 2) : nullptr;
  bf16* y = filled<bf16>(gpu, n, 3);
  return {[=](cudaStream_t s) { swiglu(x, probs, y, rows, cols, s); },
          [=, &gpu] {
            const Numbers in = to_host(gpu, x, 2 * n);
            const Numbers p = has_probs ? to_host(gpu, probs, static_cast<std::size_t>(rows))
                                        : Numbers(static_cast<std::size_t>(rows), 1.0);
            Numbers want(n);
            for (std::size_t i = 0; i < n; ++i) {
              const std::size_t r = i / width, c = i % width;
              const double gate = in[2 * r * width + c], up = in[2 * r * width + width + c];
              want[i] = gate * sigmoid(gate) * up * p[r];
            }
            return rel_error(to_host(gpu, y, n), want);
          }};
}

Instance make_swiglu_backward(Gpu& gpu, int rows, int cols, bool has_probs) {
  const std::size_t n = count(rows, cols), width = static_cast<std::size_t>(cols),
                    height = static_cast<std::size_t>(rows);
  const bf16 *dy = filled<bf16>(gpu, n, 1), *x = filled<bf16>(gpu, 2 * n, 2);
  const float* probs = has_probs ? filled<float>(gpu, height, 3) : nullptr;
  bf16* dx = filled<bf16>(gpu, 2 * n, 4);
  auto* dprobs = gpu.arena->take<float>(height);
  return {[=](cudaStream_t s) { swiglu_backward(dy, x, probs, dx, dprobs, rows, cols, s); },
          [=, &gpu] {
            const Numbers g = to_host(gpu, dy, n), in = to_host(gpu, x, 2 * n);
            const Numbers p = has_probs ? to_host(gpu, probs, height) : Numbers(height, 1.0);
            Numbers want(2 * n), want_p(height, 0.0);
            for (std::size_t i = 0; i < n; ++i) {
              const std::size_t r = i / width, c = i % width, at = 2 * r * width + c;
              const double gate = in[at], up = in[at + width], s = sigmoid(gate);
              want[at] = g[i] * p[r] * up * (s + gate * s * (1 - s));
              want[at + width] = g[i] * p[r] * gate * s;
              want_p[r] += g[i] * gate * s * up;
            }
            const double error = rel_error(to_host(gpu, dx, 2 * n), want);
            return has_probs ? std::max(error, rel_error(to_host(gpu, dprobs, height), want_p))
                             : error;
          }};
}

}  // namespace

std::vector<MemoryKernel> norm_kernels() {
  const auto swiglu_row = [](bool probs) {
    return MemoryKernel{
        "swiglu", {{"probs", probs ? 1.0 : 0.0}}, "bf16", 6, [=](Gpu& g, int r, int c) {
          return make_swiglu(g, r, c, probs);
        }};
  };
  const auto swiglu_backward_row = [](bool probs) {
    return MemoryKernel{
        "swiglu_backward", {{"probs", probs ? 1.0 : 0.0}}, "bf16", 10, [=](Gpu& g, int r, int c) {
          return make_swiglu_backward(g, r, c, probs);
        }};
  };
  return {{"rms_norm", {}, "bf16", 4, make_norm},
          {"rms_norm_backward", {}, "bf16", 6, make_norm_backward},
          swiglu_row(false),
          swiglu_row(true),
          swiglu_backward_row(false),
          swiglu_backward_row(true)};
}

}  // namespace moecast::cuda
