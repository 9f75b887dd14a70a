#include "calibrate/random_shapes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace moecast {
namespace {

/// std::mt19937 is the same everywhere, the distributions of the library are not.
class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  /// Log-uniform, a multiple of `step`.
  int between(double low, double high, int step = 1) {
    const double value = low * std::pow(high / low, uniform());
    return std::max(1, static_cast<int>(std::lround(value / step))) * step;
  }
  int one_of(std::initializer_list<int> choices) {
    return choices.begin()[random_() % choices.size()];
  }

 private:
  double uniform() { return static_cast<double>(random_()) / 4294967296.0; }
  std::mt19937 random_;
};

/// `count` shapes that `draw` makes and `fits` accepts.
template <typename Draw, typename Fits>
auto draw_shapes(unsigned seed, std::size_t count, Draw draw, Fits fits) {
  Dice dice(seed);
  std::vector<decltype(draw(dice))> shapes;
  while (shapes.size() < count)
    if (const auto shape = draw(dice); fits(shape)) shapes.push_back(shape);
  return shapes;
}

double area(const MatrixShape& s) { return double(s.rows) * s.cols; }

std::vector<MatrixShape> matrices(unsigned seed, double low, double high, int step, double most) {
  return draw_shapes(
      seed, 14,
      [=](Dice& d) {
        return MatrixShape{d.between(128, 1e6, 128), d.between(low, high, step)};
      },
      [=](const MatrixShape& s) { return area(s) <= most; });
}

std::vector<RoutedShape> routed(unsigned seed, std::size_t count, double most_rows) {
  return draw_shapes(
      seed, count,
      [](Dice& d) {
        return RoutedShape{d.between(128, 65536), d.between(1024, 8192, 256),
                           d.one_of({1, 2, 4, 6, 8}), d.one_of({8, 16, 32, 60, 64, 128, 256})};
      },
      [=](const RoutedShape& s) { return double(s.tokens) * s.topk * s.hidden <= most_rows; });
}

}  // namespace

std::vector<DenseShape> random_gemm_shapes(unsigned seed) {
  std::vector<DenseShape> shapes = draw_shapes(
      seed, 30,
      [](Dice& d) {  // FP8 needs wider steps than BF16
        const bool is_core = d.one_of({0, 0, 1}) == 1;
        const int step = is_core ? 128 : 16;
        return DenseShape{d.between(16, 65536, step), d.between(128, 32768, step),
                          d.between(128, 16384, step), is_core};
      },
      [](const DenseShape& s) {
        return double(s.m) * s.n * s.k <= 4e12 && double(s.m) * s.n <= 1e9;
      });
  return shapes;
}

std::vector<GroupedShape> random_grouped_shapes(unsigned seed) {
  return draw_shapes(
      seed, 24,
      [](Dice& d) {
        return GroupedShape{d.between(2, 128),
                            d.between(16, 8192, 16),
                            d.between(512, 8192, 128),
                            d.between(512, 8192, 128),
                            false,
                            d.one_of({0, 1}) == 1};
      },
      [](const GroupedShape& s) {
        const double rows = double(s.experts) * s.tokens_per_expert;
        return rows <= 65536 && rows * s.n * s.k <= 2e12 && double(s.experts) * s.n * s.k <= 1.5e9;
      });
}

std::vector<AttentionGrid> random_attention_shapes(unsigned seed) {
  return draw_shapes(
      seed, 26,
      [](Dice& d) {
        const int width = d.one_of({64, 128, 128, 192});
        const int kv = width == 192 ? 0 : d.one_of({1, 2, 4, 8});
        const int heads = width == 192 ? d.between(8, 128, 8) : kv * d.one_of({1, 2, 4, 8, 16});
        return AttentionGrid{d.between(1, 16),
                             d.between(512, 131072, 128),
                             heads,
                             width == 192 ? heads : kv,
                             width,
                             std::min(width, 128)};
      },
      [](const AttentionGrid& a) {
        const double tokens = double(a.batch) * a.seq;
        return tokens <= 131072 && tokens * a.seq * a.heads * (a.qk_dim + a.v_dim) <= 5e13 &&
               tokens * a.heads * a.qk_dim <= 1e9;
      });
}

std::vector<MatrixShape> random_memory_shapes(unsigned seed) {
  return matrices(seed, 512, 16384, 128, 5e8);
}
std::vector<MatrixShape> random_router_shapes(unsigned seed) {
  return matrices(seed, 8, 512, 8, 1e8);
}
std::vector<MatrixShape> random_loss_shapes(unsigned seed) {
  return matrices(seed, 16384, 262144, 128, 2e9);
}
std::vector<MatrixShape> random_adam_shapes(unsigned seed) {
  return matrices(seed, 1024, 8192, 256, 5e8);
}
std::vector<RoutedShape> random_permute_shapes(unsigned seed) { return routed(seed, 14, 1e9); }
std::vector<RoutedShape> random_dispatch_shapes(unsigned seed) { return routed(seed, 8, 5e8); }

std::vector<std::uint64_t> random_bytes(unsigned seed) {
  auto sizes = draw_shapes(
      seed, 12, [](Dice& d) { return std::uint64_t{1024} * d.between(1, 1048576); },
      [](std::uint64_t) { return true; });
  std::sort(sizes.begin(), sizes.end());  // the last one is the buffer
  return sizes;
}

}  // namespace moecast
