#pragma once
/// One GPU under measurement: streams, library handles, memory.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "calibrate/cuda/check.hpp"
#include "calibrate/cuda/nvml.hpp"

namespace moecast::cuda {

/// Device memory that is handed out in order and given back together.
class Arena {
 public:
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Throws Unsupported when the device is too small for the shape.
  void* take(std::size_t bytes);
  template <typename T>
  T* take(std::size_t n) {
    return static_cast<T*>(take(n * sizeof(T)));
  }
  void reset() { used_ = 0; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

 private:
  char* base_ = nullptr;
  std::size_t capacity_ = 0, used_ = 0;
};

/// Memory of the host that the device copies to and from at full speed.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes) {
    check(cudaHostAlloc(&data_, bytes, cudaHostAllocPortable));
  }
  ~PinnedBuffer() { cudaFreeHost(data_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

inline constexpr int kSideStreams = 4;  ///< as TransformerEngine's multi-stream grouped GEMM
inline constexpr std::size_t kWorkspaceBytes =
    32u << 20;  ///< of one cuBLAS stream, TransformerEngine's on Hopper

class Gpu {
 public:
  explicit Gpu(int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Every thread that measures calls it first.
  void make_current() const { check(cudaSetDevice(ordinal)); }
  /// Handles, workspaces and the arena, after the memory overhead has been read.
  void open_libraries();
  void sync() const { check(cudaStreamSynchronize(stream)); }
  /// In the order of `stream`, which a plain cudaMemcpy of few bytes does not wait for.
  void upload(void* to, const void* from, std::size_t bytes) const {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    sync();
  }
  /// Whether `capability` (such as 9.0) or later.
  [[nodiscard]] bool has(int major, int minor = 0) const {
    return properties.major > major || (properties.major == major && properties.minor >= minor);
  }
  /// Copies of a working set that together exceed twice the L2.
  [[nodiscard]] int copies_beyond_l2(std::size_t bytes) const;
  /// sqrt(sum of squared errors / sum of squares) as compare.cu leaves it.
  [[nodiscard]] double relative_error() const;

  int ordinal = 0;
  cudaDeviceProp properties{};
  std::unique_ptr<Nvml> nvml;
  cudaStream_t stream = nullptr;
  std::array<cudaStream_t, kSideStreams> side{};
  cudaEvent_t fork = nullptr;
  std::array<cudaEvent_t, kSideStreams> join{};
  cublasLtHandle_t lt = nullptr;
  cublasHandle_t cublas = nullptr;
  cudnnHandle_t cudnn = nullptr;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Arena> workspaces;  ///< kWorkspaceBytes for `stream` and each side stream
  std::array<void*, kSideStreams + 1> workspace{};
  double* error_sums = nullptr;  ///< device: what compare.cu adds up
};

}  // namespace moecast::cuda
