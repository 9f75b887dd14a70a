// Casts to FP8: one copy, and the row- and columnwise copies that each recipe of training makes.
#include <algorithm>

#include "calibrate/cuda/host_check.hpp"
#include "calibrate/cuda/memory_kernels.hpp"

namespace moecast::cuda {
namespace {

std::size_t count(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

struct Recipe {
  const char* name;
  Scaling scaling;
  int block;           ///< elements that share a scale, 0 = the tensor
  bool has_amax_pass;  ///< current scaling reads the tensor once more
  bool is_transposed;  ///< the columnwise copy
};

constexpr float kTensorScale = 32.f;

Instance make_cast(Gpu& gpu, int rows, int cols) {
  const std::size_t n = count(rows, cols);
  const bf16* x = filled<bf16>(gpu, n, 1);
  auto* y = gpu.arena->take<__nv_fp8_e4m3>(n);
  auto* scale = gpu.arena->take<float>(1);
  gpu.upload(scale, &kTensorScale, sizeof(float));
  return {[=](cudaStream_t s) { cast(x, scale, y, n, s); },
          [=, &gpu] {
            Numbers got = to_host(gpu, y, n);
            for (double& v : got) v /= kTensorScale;
            return rel_error(got, to_host(gpu, x, n));
          }};
}

/// Both copies times their scales must be the input again.
Instance make_quantize(Gpu& gpu, int rows, int cols, const Recipe& recipe) {
  const std::size_t n = count(rows, cols), height = static_cast<std::size_t>(rows),
                    width = static_cast<std::size_t>(cols);
  const bf16* x = filled<bf16>(gpu, n, 1);
  auto *row = gpu.arena->take<__nv_fp8_e4m3>(n), *col = gpu.arena->take<__nv_fp8_e4m3>(n);
  const std::size_t block = recipe.block == 0 ? 1 : static_cast<std::size_t>(recipe.block);
  auto *row_scales = gpu.arena->take<float>(n / block),
       *col_scales = gpu.arena->take<float>(n / block);
  auto *scale = gpu.arena->take<float>(1), *top = gpu.arena->take<float>(1);
  gpu.upload(scale, &kTensorScale, sizeof(float));
  return {
      [=](cudaStream_t s) {
        check(cudaMemsetAsync(top, 0, sizeof(float), s));
        if (recipe.has_amax_pass) amax(x, top, n, s);
        quantize(recipe.scaling, x, row, col, row_scales, col_scales, scale, top, rows, cols, s);
      },
      [=, &gpu] {
        const Numbers want = to_host(gpu, x, n), q = to_host(gpu, row, n), t = to_host(gpu, col, n);
        const bool is_tensor = recipe.block == 0;
        const Numbers rs = is_tensor ? Numbers{} : to_host(gpu, row_scales, n / block);
        const Numbers cs = is_tensor ? Numbers{} : to_host(gpu, col_scales, n / block);
        Numbers by_row(n), by_col(n);
        double largest = 0;
        for (std::size_t i = 0; i < n; ++i) {
          const std::size_t r = i / width, c = i % width,
                            at = recipe.is_transposed ? c * height + r : i;
          by_row[i] = q[i] * (is_tensor ? 1 / kTensorScale : rs[c / block * height + r]);
          by_col[i] = t[at] * (is_tensor ? 1 / kTensorScale : cs[r / block * width + c]);
          largest = std::max(largest, std::abs(want[i]));
        }
        const double error = std::max(rel_error(by_row, want), rel_error(by_col, want));
        return is_tensor ? std::max(error, std::abs(to_host(gpu, top, 1)[0] - largest)) : error;
      }};
}

}  // namespace

std::vector<MemoryKernel> quantize_kernels() {
  static constexpr Recipe kRecipes[] = {{"fp8_delayed", Scaling::per_tensor, 0, false, true},
                                        {"fp8_tensorwise", Scaling::per_tensor, 0, true, true},
                                        {"fp8_blockwise", Scaling::block128, 128, false, true},
                                        {"mxfp8", Scaling::mx32, 32, false, false}};
  std::vector<MemoryKernel> rows{{"cast", {}, "fp8_tensorwise", 3, make_cast}};
  for (const Recipe& r : kRecipes) {
    const double scales = r.block == 0 ? 0 : 8.0 / r.block;
    rows.push_back(
        {"quantize",
         {},
         r.name,
         (r.has_amax_pass ? 6 : 4) + scales,
         [&r](Gpu& g, int rows_, int cols_) { return make_quantize(g, rows_, cols_, r); }});
  }
  return rows;
}

}  // namespace moecast::cuda
