#pragma once
/// All GPUs that calibrate together: those of this process, and the NCCL ranks of others.
#include <memory>
#include <vector>

#include "calibrate/cuda/gpu.hpp"

namespace moecast::cuda {

struct World {
  std::vector<Gpu*> gpus;         ///< of this process
  std::vector<ncclComm_t> comms;  ///< one per GPU of this process
  int first_rank = 0, ranks = 1;  ///< NCCL ranks, this process' first one
  bool has_peer_access = false;   ///< all GPUs of this process to each other
  [[nodiscard]] bool spans_processes() const {
    return static_cast<std::size_t>(ranks) != gpus.size();
  }
};

}  // namespace moecast::cuda
