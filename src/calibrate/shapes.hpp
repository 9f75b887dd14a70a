#pragma once
/// The shapes that calibration measures: those of MoE and dense layers in training, and the corners
/// between them. Pure.
#include <cstdint>
#include <vector>

namespace moecast {

struct DenseShape {
  int m, n, k;
  bool is_core;  ///< also measured at burst clocks, and in FP8
};
struct GroupedShape {
  int experts, tokens_per_expert, n, k;
  bool is_skewed, is_core;
};
struct AttentionGrid {
  int batch, seq, heads, kv_heads, qk_dim, v_dim;
};
struct MatrixShape {
  int rows, cols;
};
struct RoutedShape {
  int tokens, hidden, topk, experts;
  int sms = 0;  ///< that the kernel may use; 0 = all
};

/// Which shapes: all of the grid that a fit needs, its quick part, or random ones between its
/// points, log-uniform, to hold a fit against.
struct Grid {
  bool is_quick = false;
  unsigned seed = 0;  ///< of the random shapes; 0 = the grid
};

std::vector<DenseShape> gemm_shapes(const Grid& grid);
std::vector<GroupedShape> grouped_shapes(const Grid& grid);
std::vector<AttentionGrid> attention_shapes(const Grid& grid);
/// Rows of tokens that a layer's kernels stream through.
std::vector<MatrixShape> memory_shapes(const Grid& grid);
/// Rows of tokens over experts.
std::vector<MatrixShape> router_shapes(const Grid& grid);
/// Rows of tokens over the vocabulary.
std::vector<MatrixShape> loss_shapes(const Grid& grid);
/// Parameters.
std::vector<MatrixShape> adam_shapes(const Grid& grid);
std::vector<RoutedShape> permute_shapes(const Grid& grid);
/// Fused moves by a few thread blocks, as HybridEP's kernels have them.
std::vector<RoutedShape> permute_shapes_on_some_sms(const Grid& grid);
std::vector<RoutedShape> dispatch_shapes(const Grid& grid);
/// 1 KiB to 1 GiB.
std::vector<std::uint64_t> message_bytes(const Grid& grid);
std::vector<std::uint64_t> host_copy_bytes(const Grid& grid);
std::vector<int> dispatch_sms(const Grid& grid);

/// Rows of each expert, all a multiple of 16 and `experts` x `mean` in total. Skewed: proportional
/// to (rank + 1)^-0.5, in an order that mixes large and small.
std::vector<int> rows_per_expert(int experts, int mean, bool is_skewed);
double skew_of(const std::vector<int>& rows);

/// topk distinct experts for every token, uniform; the same for the same seed.
std::vector<int> route_tokens(int tokens, int topk, int experts, unsigned seed);

}  // namespace moecast
