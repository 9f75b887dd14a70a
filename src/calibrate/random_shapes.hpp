#pragma once
/// Log-uniform shapes over all that training may ask for; the same for the same seed. Pure.
#include <cstdint>

#include "calibrate/shapes.hpp"

namespace moecast {

std::vector<DenseShape> random_gemm_shapes(unsigned seed);
std::vector<GroupedShape> random_grouped_shapes(unsigned seed);
std::vector<AttentionGrid> random_attention_shapes(unsigned seed);
std::vector<MatrixShape> random_memory_shapes(unsigned seed);
std::vector<MatrixShape> random_router_shapes(unsigned seed);
std::vector<MatrixShape> random_loss_shapes(unsigned seed);
std::vector<MatrixShape> random_adam_shapes(unsigned seed);
std::vector<RoutedShape> random_permute_shapes(unsigned seed);
std::vector<RoutedShape> random_dispatch_shapes(unsigned seed);
std::vector<std::uint64_t> random_bytes(unsigned seed);

}  // namespace moecast
