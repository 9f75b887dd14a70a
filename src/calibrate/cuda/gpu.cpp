#include "calibrate/cuda/gpu.hpp"

#include <algorithm>
#include <cmath>

namespace moecast::cuda {
namespace {

constexpr std::size_t kAlign = 1024;
constexpr std::size_t kArenaBytes = std::size_t{40} << 30;
constexpr double kArenaShare = 0.6;  ///< of free memory, on smaller devices

std::string bus_id(int ordinal) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal));
  return text.data();
}

}  // namespace

Arena::Arena(std::size_t bytes) : capacity_(bytes) {
  void* p = nullptr;
  check(cudaMalloc(&p, bytes));
  base_ = static_cast<char*>(p);
}

Arena::~Arena() { cudaFree(base_); }

void* Arena::take(std::size_t bytes) {
  const std::size_t padded = (bytes + kAlign - 1) / kAlign * kAlign;
  if (used_ + padded > capacity_) throw Unsupported("needs more memory than this GPU has");
  void* p = base_ + used_;
  used_ += padded;
  return p;
}

Gpu::Gpu(int index) : ordinal(index) {
  check(cudaGetDeviceProperties(&properties, ordinal));
  make_current();
  nvml = std::make_unique<Nvml>(bus_id(ordinal));
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

void Gpu::open_libraries() {
  make_current();
  for (auto& s : side) check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (auto& e : join) check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  check(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  check(cublasLtCreate(&lt));
  check(cublasCreate(&cublas));
  check(cudnnCreate(&cudnn));
  check(cudnnSetStream(cudnn, stream));
  workspaces = std::make_unique<Arena>((workspace.size() + 1) * kWorkspaceBytes);
  for (auto& w : workspace) w = workspaces->take(kWorkspaceBytes);
  check(cublasSetStream(cublas, stream));
  check(cublasSetWorkspace(cublas, workspace[0], kWorkspaceBytes));
  error_sums = workspaces->take<double>(2);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  arena = std::make_unique<Arena>(
      std::min(kArenaBytes, static_cast<std::size_t>(kArenaShare * static_cast<double>(free))));
}

Gpu::~Gpu() {
  cudaSetDevice(ordinal);
  if (cudnn != nullptr) cudnnDestroy(cudnn);
  if (cublas != nullptr) cublasDestroy(cublas);
  if (lt != nullptr) cublasLtDestroy(lt);
  for (auto& e : join)
    if (e != nullptr) cudaEventDestroy(e);
  if (fork != nullptr) cudaEventDestroy(fork);
  for (auto& s : side)
    if (s != nullptr) cudaStreamDestroy(s);
  cudaStreamDestroy(stream);
}

int Gpu::copies_beyond_l2(std::size_t bytes) const {
  const auto wanted = 2 * static_cast<std::size_t>(properties.l2CacheSize);
  return static_cast<int>(
      std::clamp<std::size_t>(wanted / std::max<std::size_t>(bytes, 1) + 1, 1, 64));
}

double Gpu::relative_error() const {
  std::array<double, 2> sums{};
  check(cudaMemcpyAsync(sums.data(), error_sums, sizeof(sums), cudaMemcpyDeviceToHost, stream));
  sync();
  if (std::isnan(sums[0]) || sums[1] == 0)
    throw WrongResult("the result has NaN or nothing was computed");
  return std::sqrt(sums[0] / sums[1]);
}

}  // namespace moecast::cuda
