#pragma once
/// What the node is: properties, versions, memory.
#include <memory>
#include <vector>

#include "calibrate/cuda/world.hpp"
#include "moecast/samples.hpp"

namespace moecast::cuda {

SampleDevice device_facts(const std::vector<std::unique_ptr<Gpu>>& gpus);
/// Memory that a context takes on that device, made now; 0 if there was one already.
double context_bytes(int ordinal);
double free_bytes(const Gpu& gpu);
/// All GPUs of this process to each other; false if some pair has no peer access.
bool enable_peer_access(const World& world);
/// One small collective, so that NCCL allocates what it will hold.
void warm_up(World& world);

}  // namespace moecast::cuda
