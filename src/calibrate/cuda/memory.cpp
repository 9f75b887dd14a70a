// The memory-bound kernels of a layer, over the tables of memory_*.cpp.
#include "calibrate/cuda/memory_kernels.hpp"
#include "calibrate/cuda/sections.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {
namespace {

constexpr int kCheckedRows = 128;

/// E4M3 keeps 3 bits of mantissa: 2^-4 at worst, half of it on average.
double error_bound(const std::string& cls) {
  return cls == "cast" || cls == "quantize" ? 4e-2 : 6e-3;
}

Work prepare(Gpu& gpu, const MemoryKernel& kernel, int rows, int cols) {
  Work work;
  {
    const Instance small = kernel.make(gpu, kCheckedRows, cols);
    small.launch(gpu.stream);
    work.rel_error = require_error_below(small.error(), error_bound(kernel.cls));
    gpu.arena->reset();
  }
  const double bytes = kernel.bytes_per_element * rows * cols;
  work.copies = gpu.copies_beyond_l2(static_cast<std::size_t>(bytes));
  std::vector<Instance> instances;
  for (int i = 0; i < work.copies; ++i) instances.push_back(kernel.make(gpu, rows, cols));
  work.launch = [instances](cudaStream_t s, int copy) {
    instances[static_cast<std::size_t>(copy)].launch(s);
  };
  return work;
}

void measure_table(Bench& bench, const std::vector<MemoryKernel>& table,
                   const std::vector<MatrixShape>& shapes) {
  for (const MemoryKernel& kernel : table) {
    for (const MatrixShape& shape : shapes) {
      KernelKeys keys = kernel.extra;
      keys.insert({{"rows", double(shape.rows)},
                   {"cols", double(shape.cols)},
                   {"precision", kernel.precision}});
      if (kernel.cls == "router") keys["experts"] = double(shape.cols);
      bench.measure({kernel.cls, keys, "moecast"}, {Mode::sustained},
                    [&] { return prepare(bench.gpu, kernel, shape.rows, shape.cols); });
    }
  }
}

}  // namespace

void measure_memory(Bench& bench) {
  const std::vector<MatrixShape> shapes = memory_shapes(bench.grid);
  for (const auto& table : {elementwise_kernels(), norm_kernels(), quantize_kernels()})
    measure_table(bench, table, shapes);
  for (const MemoryKernel& kernel : wide_kernels())
    measure_table(bench, {kernel},
                  kernel.cls == "adam"     ? adam_shapes(bench.grid)
                  : kernel.cls == "router" ? router_shapes(bench.grid)
                                           : loss_shapes(bench.grid));
}

}  // namespace moecast::cuda
