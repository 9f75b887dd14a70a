#include "calibrate/cuda/device_facts.hpp"

#include <ctime>

#include <fmt/format.h>

namespace moecast::cuda {
namespace {

constexpr double kMib = 1 << 20, kGib = 1 << 30;

/// 13010 -> "13.1" (CUDA), 130100 -> "13.1.0" (cuBLAS), 91900 -> "9.19.0", 22809 -> "2.28.9"
std::string three_parts(std::size_t v, std::size_t major) {
  return fmt::format("{}.{}.{}", v / major, v % major / 100, v % 100);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

}  // namespace

SampleDevice device_facts(const std::vector<std::unique_ptr<Gpu>>& gpus) {
  const Gpu& gpu = *gpus[0];
  SampleDevice d;
  d.name = gpu.properties.name;
  d.compute_capability = gpu.properties.major + gpu.properties.minor / 10.0;
  d.sms = gpu.properties.multiProcessorCount;
  d.gpus = static_cast<int>(gpus.size());
  d.nvlink_links = gpu.nvml->nvlink_links();
  d.l2_mib = gpu.properties.l2CacheSize / kMib;
  d.memory_gib = static_cast<double>(gpu.properties.totalGlobalMem) / kGib;
  d.sm_clock_max_mhz = gpu.nvml->max_sm_clock_mhz();
  d.power_limit_w = gpu.nvml->power_limit_w();
  d.driver = gpu.nvml->driver();
  int runtime = 0, nccl = 0;
  cudaRuntimeGetVersion(&runtime);
  ncclGetVersion(&nccl);
  d.cuda = fmt::format("{}.{}", runtime / 1000, runtime % 1000 / 10);
  d.cublaslt = three_parts(cublasLtGetVersion(), 10000);
  d.cudnn = three_parts(cudnnGetVersion(), 10000);
  d.nccl = three_parts(static_cast<std::size_t>(nccl), 10000);
  d.date = today();
  d.more["memory_reserved_mib"] = gpu.nvml->memory_reserved_mib();
  return d;
}

double free_bytes(const Gpu& gpu) {
  gpu.make_current();
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  return static_cast<double>(free);
}

double context_bytes(int ordinal) {
  check(cudaSetDevice(ordinal));
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  return static_cast<double>(total - free);
}

bool enable_peer_access(const World& world) {
  bool all = true;
  for (const Gpu* a : world.gpus) {
    a->make_current();
    for (const Gpu* b : world.gpus) {
      if (a == b) continue;
      int can = 0;
      check(cudaDeviceCanAccessPeer(&can, a->ordinal, b->ordinal));
      const cudaError_t status =
          can != 0 ? cudaDeviceEnablePeerAccess(b->ordinal, 0) : cudaErrorPeerAccessUnsupported;
      if (status == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
      all = all && (status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled);
    }
  }
  return all;
}

void warm_up(World& world) {
  check(ncclGroupStart());
  for (std::size_t i = 0; i < world.gpus.size(); ++i) {
    Gpu& gpu = *world.gpus[i];
    gpu.arena->reset();
    auto* data = gpu.arena->take<float>(1024);
    check(ncclAllReduce(data, data, 1024, ncclFloat, ncclSum, world.comms[i], gpu.stream));
  }
  check(ncclGroupEnd());
  for (const Gpu* gpu : world.gpus) {
    gpu->make_current();
    gpu->sync();
  }
}

}  // namespace moecast::cuda
