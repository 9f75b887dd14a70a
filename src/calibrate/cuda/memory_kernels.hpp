#pragma once
/// Memory-bound kernels as rows of a table: operands, launch, and what the result must be.
#include <functional>
#include <string>
#include <vector>

#include "calibrate/cuda/bench.hpp"

namespace moecast::cuda {

/// One kernel on `rows` x `cols`, its operands taken from the arena.
struct Instance {
  std::function<void(cudaStream_t)> launch;
  /// Relative error of what launch() left, against double on the host.
  std::function<double()> error;
};

struct MemoryKernel {
  std::string cls;
  KernelKeys extra;  ///< beside rows, cols and precision
  std::string precision;
  double bytes_per_element;  ///< read and written, of rows x cols
  std::function<Instance(Gpu&, int rows, int cols)> make;
};

std::vector<MemoryKernel> elementwise_kernels();
std::vector<MemoryKernel> norm_kernels();
std::vector<MemoryKernel> quantize_kernels();
/// Their width is not the hidden size: `cols` is fixed by the kernel (experts, vocabulary,
/// optimizer).
std::vector<MemoryKernel> wide_kernels();

template <typename T>
T* filled(Gpu& gpu, std::size_t n, unsigned seed, float sigma = 1.f);

}  // namespace moecast::cuda
