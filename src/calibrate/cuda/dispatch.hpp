#pragma once
/// Expert-parallel exchange of one layer, set up on all GPUs of this process.
#include "calibrate/cuda/p2p.hpp"
#include "calibrate/cuda/together.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {

/// Our peer-to-peer kernels: buffers, routing and layout of every rank. Copies share device memory.
struct P2pExchange {
  P2pWorld world{};
  std::vector<int*> expert_of, slot;
  std::vector<float*> probs;
  std::vector<__nv_bfloat16*> x, out;
  std::vector<std::vector<int>> chosen;  ///< host: experts of every (token, slot)
};

P2pExchange set_up_exchange(World& world, const RoutedShape& shape);
void enqueue_dispatch(const World& world, const P2pExchange& e, bool has_layout, int sms,
                      const StreamOf& stream);
void enqueue_combine(const World& world, const P2pExchange& e, int sms, const StreamOf& stream);

}  // namespace moecast::cuda
