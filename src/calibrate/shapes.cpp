#include "calibrate/shapes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>

#include "calibrate/random_shapes.hpp"

namespace moecast {
namespace {

struct Weight {
  int n, k;
  bool is_core;
};

// Linear layers of published models (n outputs, k inputs), unsharded and as TP leaves them.
constexpr Weight kWeights[] = {
    {4096, 4096, true},  {5120, 2048, true},   {2048, 4096, false},  {1536, 2048, true},
    {2048, 768, false},  {9216, 4096, true},   {4096, 8192, false},  {3072, 4096, false},
    {1536, 7168, false}, {24576, 1536, true},  {32768, 512, false},  {7168, 16384, true},
    {4096, 7168, true},  {7168, 2048, true},   {28672, 4096, true},  {4096, 14336, false},
    {8192, 8192, true},  {10240, 8192, false}, {1024, 1024, false},  {512, 7168, false},
    {768, 2048, false},  {6144, 1024, false},  {37888, 2048, false}, {16384, 5120, false},
};
constexpr int kTokens[] = {1024, 2048, 4096, 8192, 16384};
constexpr int kFewTokens[] = {16, 64, 128, 256, 512};

}  // namespace

std::vector<DenseShape> gemm_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_gemm_shapes(grid.seed);
  const bool is_quick = grid.is_quick;
  std::vector<DenseShape> shapes;
  for (const Weight& w : kWeights) {
    if (is_quick && !w.is_core) continue;
    for (const int m : kTokens) {
      const bool is_core = w.is_core && (m == 4096 || m == 8192 || m == 2048);
      if (is_quick && m != 4096 && m != 16384) continue;
      // Away from the core every other point: the fit interpolates.
      if (!is_quick && !w.is_core && m != 4096 && (m / 1024 + w.n / 512) % 2 == 0) continue;
      shapes.push_back({m, w.n, w.k, is_core});
    }
    for (const int m : kFewTokens)
      if (w.is_core && !is_quick) shapes.push_back({m, w.n, w.k, false});
  }
  return shapes;
}

std::vector<GroupedShape> grouped_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_grouped_shapes(grid.seed);
  const bool is_quick = grid.is_quick;
  constexpr Weight kExperts[] = {{4096, 7168, true}, {7168, 2048, true},  {1536, 2048, true},
                                 {2048, 768, false}, {3072, 4096, false}, {4096, 1536, true}};
  std::vector<GroupedShape> shapes;
  for (const Weight& w : kExperts) {
    for (const int tokens : {32, 64, 128, 256, 512, 1024, 2048, 4096}) {
      if (is_quick && (!w.is_core || (tokens != 128 && tokens != 1024))) continue;
      for (const int experts : {4, 8, 16, 32, 64}) {
        const bool is_middle = experts == 8 || experts == 32;
        if (tokens * experts > 32768 || (is_quick && experts != 8)) continue;
        if (!w.is_core && !is_middle) continue;
        if (!is_middle && tokens != 128 && tokens != 512) continue;
        const bool is_core = w.is_core && is_middle && tokens >= 128 && tokens <= 2048;
        shapes.push_back({experts, tokens, w.n, w.k, false, is_core});
        if (is_core && (tokens == 512 || (tokens == 128 && !is_quick)))
          shapes.push_back({experts, tokens, w.n, w.k, true, false});
      }
    }
  }
  return shapes;
}

std::vector<AttentionGrid> attention_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_attention_shapes(grid.seed);
  const bool is_quick = grid.is_quick;
  std::vector<AttentionGrid> shapes;
  for (const int seq : {512, 1024, 2048, 4096, 8192, 16384, 32768}) {
    if (is_quick && seq != 2048 && seq != 8192) continue;
    const bool is_long = seq > 16384;
    shapes.push_back({1, seq, 32, 4, 128, 128});
    if (!is_long) shapes.push_back({1, seq, 64, 4, 128, 128});
    shapes.push_back({1, seq, is_long ? 16 : 128, is_long ? 16 : 128, 192, 128});
    shapes.push_back({1, seq, 64, 8, 64, 64});
    if (!is_quick && seq <= 4096) {
      shapes.push_back({4, seq, 32, 8, 128, 128});
      shapes.push_back({1, seq, 16, 16, 192, 128});
      shapes.push_back({1, seq, 8, 8, 128, 128});
      shapes.push_back({4, seq, 16, 16, 64, 64});
    }
  }
  if (!is_quick) {  // what context parallelism leaves of long sequences
    shapes.push_back({1, 65536, 16, 2, 128, 128});
    shapes.push_back({1, 131072, 8, 1, 128, 128});
    shapes.push_back({1, 65536, 8, 8, 192, 128});
    shapes.push_back({1, 65536, 16, 2, 64, 64});
    shapes.push_back({16, 512, 16, 2, 128, 128});
    shapes.push_back({8, 1024, 16, 16, 192, 128});
    shapes.push_back({1, 8192, 4, 1, 128, 128});
  }
  return shapes;
}

std::vector<MatrixShape> memory_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_memory_shapes(grid.seed);
  const bool is_quick = grid.is_quick;
  if (is_quick) return {{4096, 4096}, {16384, 7168}};
  return {{128, 4096},  {512, 2048},   {1024, 7168},  {2048, 1536},  {2048, 16384}, {4096, 2048},
          {4096, 4096}, {4096, 7168},  {8192, 768},   {8192, 2048},  {8192, 7168},  {16384, 5120},
          {32768, 512}, {32768, 2048}, {32768, 7168}, {131072, 128}, {131072, 2048}};
}

std::vector<MatrixShape> router_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_router_shapes(grid.seed);
  if (grid.is_quick) return {{8192, 128}};
  return {{1024, 128}, {1024, 256}, {4096, 8},   {4096, 64},   {4096, 384},
          {8192, 128}, {8192, 256}, {32768, 64}, {32768, 128}, {65536, 256}};
}

std::vector<MatrixShape> loss_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_loss_shapes(grid.seed);
  if (grid.is_quick) return {{4096, 32768}};
  return {{256, 151936},  {1024, 32768},  {1024, 129280}, {2048, 202048}, {4096, 32768},
          {4096, 102400}, {4096, 151936}, {8192, 16384},  {8192, 151936}, {16384, 32768}};
}

std::vector<MatrixShape> adam_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_adam_shapes(grid.seed);
  if (grid.is_quick) return {{16384, 4096}};
  return {{16, 4096}, {256, 4096}, {2048, 4096}, {16384, 4096}, {65536, 4096}};
}

std::vector<RoutedShape> permute_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_permute_shapes(grid.seed);
  const bool is_quick = grid.is_quick;
  if (is_quick) return {{4096, 7168, 8, 256}, {8192, 2048, 8, 128}};
  return {{512, 7168, 8, 256},  {1024, 2048, 8, 128}, {4096, 2048, 8, 128}, {8192, 2048, 8, 128},
          {4096, 4096, 8, 128}, {4096, 4096, 2, 8},   {4096, 7168, 4, 64},  {4096, 7168, 8, 256},
          {8192, 7168, 8, 256}, {16384, 2048, 6, 64}};
}

std::vector<RoutedShape> permute_shapes_on_some_sms(const Grid& grid) {
  std::vector<RoutedShape> shapes;
  for (RoutedShape shape : permute_shapes(grid)) {
    if (shape.tokens < 4096) continue;
    for (const int sms : dispatch_sms(grid)) {
      shape.sms = sms;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

std::vector<RoutedShape> dispatch_shapes(const Grid& grid) {
  if (grid.seed != 0) return random_dispatch_shapes(grid.seed);
  const bool is_quick = grid.is_quick;
  if (is_quick) return {{4096, 7168, 8, 256}, {4096, 2048, 8, 128}};
  return {{512, 7168, 8, 256},  {1024, 7168, 8, 256}, {2048, 7168, 8, 256}, {4096, 7168, 8, 256},
          {8192, 7168, 8, 256}, {4096, 4096, 8, 128}, {4096, 2048, 8, 128}, {16384, 2048, 8, 128},
          {4096, 7168, 4, 64},  {4096, 4096, 2, 8}};
}

std::vector<std::uint64_t> message_bytes(const Grid& grid) {
  if (grid.seed != 0) return random_bytes(grid.seed);
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t b = 1u << 10; b <= (1u << 30); b *= grid.is_quick ? 4 : 2) sizes.push_back(b);
  return sizes;
}

std::vector<std::uint64_t> host_copy_bytes(const Grid& grid) {
  if (grid.seed != 0) return random_bytes(grid.seed);
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t b = 1u << 14; b <= (1u << 30); b *= grid.is_quick ? 16 : 4) sizes.push_back(b);
  return sizes;
}

std::vector<int> dispatch_sms(const Grid& grid) {
  if (grid.seed != 0) return {6, 14, 28, 40};
  if (grid.is_quick) return {8, 24};
  return {4, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128};
}

std::vector<int> rows_per_expert(int experts, int mean, bool is_skewed) {
  constexpr int kMultiple = 16;
  std::vector<int> rows(static_cast<std::size_t>(experts), mean);
  if (!is_skewed) return rows;
  std::vector<double> weight(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    weight[i] = std::pow(static_cast<double>(i * 7 % rows.size()) + 1, -0.5);
  const double scale =
      static_cast<double>(experts) * mean / std::accumulate(weight.begin(), weight.end(), 0.0);
  int left = experts * mean;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = std::max(kMultiple,
                       static_cast<int>(std::lround(scale * weight[i] / kMultiple)) * kMultiple);
    left -= rows[i];
  }
  *std::max_element(rows.begin(), rows.end()) += left;
  return rows;
}

double skew_of(const std::vector<int>& rows) {
  const double mean =
      std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(rows.size());
  return *std::max_element(rows.begin(), rows.end()) / mean;
}

std::vector<int> route_tokens(int tokens, int topk, int experts, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> all(static_cast<std::size_t>(experts)), chosen;
  std::iota(all.begin(), all.end(), 0);
  chosen.reserve(static_cast<std::size_t>(tokens) * topk);
  for (int t = 0; t < tokens; ++t) {
    for (int k = 0; k < topk; ++k) {
      const auto other =
          static_cast<std::size_t>(k) + random() % static_cast<unsigned>(experts - k);
      std::swap(all[static_cast<std::size_t>(k)], all[other]);
      chosen.push_back(all[static_cast<std::size_t>(k)]);
    }
  }
  return chosen;
}

}  // namespace moecast
