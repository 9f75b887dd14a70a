#include "calibrate/cuda/nvml.hpp"

#include <array>

#include <dlfcn.h>

namespace moecast::cuda {
namespace {

// The few entry points of nvml.h that are used; the header does not come with every toolkit.
using Device = void*;
constexpr int kSuccess = 0, kClockSm = 1, kEnabled = 1, kMaxLinks = 18;
constexpr unsigned long long kSwThermal = 0x20, kHwSlowdown = 0x8, kHwThermal = 0x40;
struct MemoryV2 {
  unsigned version = static_cast<unsigned>(sizeof(MemoryV2)) | (2u << 24);
  unsigned long long total = 0, reserved = 0, free = 0, used = 0;
};

void* library() {
  static void* handle = [] {
    void* h = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (h == nullptr) return h;
    const auto init = reinterpret_cast<int (*)()>(dlsym(h, "nvmlInit_v2"));
    return init != nullptr && init() == kSuccess ? h : nullptr;
  }();
  return handle;
}

/// Calls an entry point, if it is there and answers.
template <typename... Args>
bool call(const char* name, Args... args) {
  if (library() == nullptr) return false;
  const auto f = reinterpret_cast<int (*)(Args...)>(dlsym(library(), name));
  return f != nullptr && f(args...) == kSuccess;
}

}  // namespace

Nvml::Nvml(const std::string& pci_bus_id) {
  if (!call("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device_)) device_ = nullptr;
}

double Nvml::sm_clock_mhz() const {
  unsigned mhz = 0;
  return device_ != nullptr && call("nvmlDeviceGetClockInfo", device_, kClockSm, &mhz) ? mhz : 0;
}

double Nvml::max_sm_clock_mhz() const {
  unsigned mhz = 0;
  return device_ != nullptr && call("nvmlDeviceGetMaxClockInfo", device_, kClockSm, &mhz) ? mhz : 0;
}

double Nvml::power_w() const {
  unsigned milliwatts = 0;
  return device_ != nullptr && call("nvmlDeviceGetPowerUsage", device_, &milliwatts)
             ? milliwatts / 1e3
             : 0;
}

double Nvml::power_limit_w() const {
  unsigned milliwatts = 0;
  return device_ != nullptr && call("nvmlDeviceGetEnforcedPowerLimit", device_, &milliwatts)
             ? milliwatts / 1e3
             : 0;
}

int Nvml::nvlink_links() const {
  int links = 0;
  for (unsigned i = 0; device_ != nullptr && i < kMaxLinks; ++i) {
    int state = 0;
    if (call("nvmlDeviceGetNvLinkState", device_, i, &state) && state == kEnabled) ++links;
  }
  return links;
}

double Nvml::memory_reserved_mib() const {
  MemoryV2 memory;
  return device_ != nullptr && call("nvmlDeviceGetMemoryInfo_v2", device_, &memory)
             ? static_cast<double>(memory.reserved) / (1 << 20)
             : 0;
}

std::string Nvml::driver() const {
  std::array<char, 96> text{};
  return call("nvmlSystemGetDriverVersion", text.data(), static_cast<unsigned>(text.size()))
             ? text.data()
             : "";
}

bool Nvml::is_throttled() const {
  unsigned long long reasons = 0;
  return device_ != nullptr &&
         call("nvmlDeviceGetCurrentClocksThrottleReasons", device_, &reasons) &&
         (reasons & (kSwThermal | kHwSlowdown | kHwThermal)) != 0;
}

}  // namespace moecast::cuda
