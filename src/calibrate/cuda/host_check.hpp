#pragma once
/// Results of memory-bound kernels, brought to the host and compared with arithmetic in double.
#include <cmath>
#include <vector>

#include <cuda_fp8.h>

#include "calibrate/cuda/gpu.hpp"
#include "calibrate/cuda/kernels.hpp"

namespace moecast::cuda {

using Numbers = std::vector<double>;

template <typename T>
Numbers to_host(const Gpu& gpu, const T* device, std::size_t n) {
  std::vector<T> raw(n);
  check(cudaMemcpyAsync(raw.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost, gpu.stream));
  gpu.sync();
  Numbers out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<double>(static_cast<float>(raw[i]));
  return out;
}

inline double rel_error(const Numbers& got, const Numbers& want) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

}  // namespace moecast::cuda
