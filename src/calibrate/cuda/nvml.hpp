#pragma once
/// Clocks, power and slow-down reasons of one GPU. NVML is loaded at run time; without it they read
/// 0.
#include <string>

namespace moecast::cuda {

class Nvml {
 public:
  /// `pci_bus_id` as cudaDeviceGetPCIBusId writes it.
  explicit Nvml(const std::string& pci_bus_id);

  [[nodiscard]] double sm_clock_mhz() const;
  [[nodiscard]] double max_sm_clock_mhz() const;
  [[nodiscard]] double power_w() const;
  [[nodiscard]] double power_limit_w() const;
  [[nodiscard]] int nvlink_links() const;
  [[nodiscard]] double memory_reserved_mib() const;
  [[nodiscard]] std::string driver() const;
  /// Slowed down for heat or by hardware: timings are refused. Power capping is normal operation.
  [[nodiscard]] bool is_throttled() const;

 private:
  void* device_ = nullptr;
};

}  // namespace moecast::cuda
