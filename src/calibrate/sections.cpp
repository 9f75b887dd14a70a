#include "calibrate/device.hpp"

namespace moecast {

const std::vector<CalibrationSection>& calibration_sections() {
  static const std::vector<CalibrationSection> sections = {
      {"overhead", "memory left after context, libraries and communicators"},
      {"launch", "kernel launches, CUDA graphs, waiting for the device"},
      {"offload", "pinned copies to and from the host"},
      {"memory", "copy, norm, activation, rope, router, loss, Adam, casts and quantisation"},
      {"permute", "permute, unpermute and sort of routed tokens"},
      {"gemm", "dense GEMM of the three training passes, every precision the GPU has"},
      {"grouped_gemm", "expert GEMM, multi-stream and single-launch, balanced and skewed"},
      {"attention", "causal attention forward and backward"},
      {"collectives", "NCCL, 1 KiB to 1 GiB (two GPUs or more)"},
      {"dispatch", "expert-parallel dispatch and combine (two GPUs or more)"},
      {"contention", "GEMM beside communication, both ways"},
  };
  return sections;
}

}  // namespace moecast
