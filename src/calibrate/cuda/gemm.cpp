// Dense GEMM: cublasLt, every precision, forward, dgrad and wgrad.
#include "calibrate/cuda/lt_gemm.hpp"
#include "calibrate/cuda/sections.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {
namespace {

/// BF16 rounding of the result is 2^-9; FP8 products with fast accumulation keep 14 bits.
double error_bound(const std::string& precision) { return precision == "bf16" ? 5e-3 : 2e-2; }

Work prepare(Gpu& gpu, const GemmProblem& problem) {
  const auto gemm = std::make_shared<LtGemm>(gpu, problem);
  Work work;
  work.copies = gpu.copies_beyond_l2(gemm->bytes());
  std::vector<GemmOperands> operands;
  for (int i = 0; i < work.copies; ++i)
    operands.push_back(gemm->take(static_cast<unsigned>(3 * i + 1)));
  work.rel_error = require_error_below(gemm->verify(operands[0]), error_bound(problem.precision));
  work.launch = [&gpu, gemm, operands](cudaStream_t s, int copy) {
    gemm->run(operands[static_cast<std::size_t>(copy)], gpu.workspace[0], s);
  };
  return work;
}

}  // namespace

void measure_gemm(Bench& bench) {
  for (const std::string& precision : gemm_precisions(bench.gpu)) {
    for (const DenseShape& shape : gemm_shapes(bench.grid)) {
      if (precision != "bf16" && !shape.is_core) continue;
      for (const char* pass : {"forward", "dgrad", "wgrad"}) {
        const GemmProblem problem{shape.m, shape.n, shape.k, precision, pass};
        const Kernel kernel{"gemm",
                            {{"m", double(shape.m)},
                             {"n", double(shape.n)},
                             {"k", double(shape.k)},
                             {"precision", precision},
                             {"pass", pass}},
                            "cublaslt"};
        const auto make = [&] { return prepare(bench.gpu, problem); };
        if (shape.is_core && precision == "bf16")
          bench.measure(kernel, {Mode::sustained, Mode::burst}, make);
        else
          bench.measure(kernel, {Mode::sustained}, make);
      }
    }
  }
}

}  // namespace moecast::cuda
