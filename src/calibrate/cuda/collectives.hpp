#pragma once
/// One NCCL collective on all GPUs of this process, sizes as nccl-tests counts them.
#include "calibrate/cuda/together.hpp"

namespace moecast::cuda {

struct CollectiveBuffers {
  std::vector<void*> send, receive;  ///< per GPU
};
CollectiveBuffers take_buffers(World& world, std::size_t bytes);
/// Names as in collective_names().
void enqueue_collective(const World& world, const std::vector<ncclComm_t>& comms,
                        const std::string& name, const CollectiveBuffers& buffers,
                        std::size_t bytes, const StreamOf& stream);
const std::vector<std::string>& collective_names();

}  // namespace moecast::cuda
