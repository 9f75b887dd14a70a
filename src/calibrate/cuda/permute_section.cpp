// Permute, unpermute and sort of really routed tokens, fused as TransformerEngine does and unfused.
#include <algorithm>

#include "calibrate/cuda/host_check.hpp"
#include "calibrate/cuda/sections.hpp"
#include "calibrate/shapes.hpp"

namespace moecast::cuda {
namespace {

/// Routing and rows of one set, on the device.
struct Routed {
  RoutedShape shape{};
  std::vector<int> chosen;  ///< host: expert of every (token, slot)
  int *expert_of, *rank_of, *offsets, *scratch, *source_of;
  float *probs, *row_probs, *sums;
  bf16 *x, *rows, *scaled, *back;
  [[nodiscard]] int pairs() const { return shape.tokens * shape.topk; }
};

Routed take(Gpu& gpu, const RoutedShape& shape, unsigned seed, bool is_unfused) {
  Routed r{};
  r.shape = shape;
  r.chosen = route_tokens(shape.tokens, shape.topk, shape.experts, seed);
  Arena& a = *gpu.arena;
  const auto pairs = static_cast<std::size_t>(r.pairs()),
             width = static_cast<std::size_t>(shape.hidden);
  const auto tokens = static_cast<std::size_t>(shape.tokens);
  r.expert_of = a.take<int>(pairs);
  r.rank_of = a.take<int>(pairs);
  r.offsets = a.take<int>(static_cast<std::size_t>(shape.experts));
  r.scratch = a.take<int>(sort_scratch(shape.tokens, shape.topk, shape.experts));
  r.source_of = a.take<int>(pairs);
  r.probs = a.take<float>(pairs);
  r.row_probs = a.take<float>(pairs);
  r.x = a.take<bf16>(tokens * width);
  r.rows = a.take<bf16>(pairs * width);
  r.back = a.take<bf16>(tokens * width);
  r.scaled = is_unfused ? a.take<bf16>(pairs * width) : nullptr;
  r.sums = is_unfused ? a.take<float>(tokens * width) : nullptr;
  check(cudaMemcpyAsync(r.expert_of, r.chosen.data(), pairs * sizeof(int), cudaMemcpyHostToDevice,
                        gpu.stream));
  fill_scales(r.probs, pairs, seed, gpu.stream);
  fill_scales(r.row_probs, pairs, seed + 1, gpu.stream);
  fill_normal(r.x, tokens * width, seed + 2, gpu.stream);
  sort_by_expert(r.expert_of, r.rank_of, r.offsets, r.scratch, shape.tokens, shape.topk,
                 shape.experts, gpu.stream);
  invert_rows(r.rank_of, r.source_of, shape.tokens, shape.topk, gpu.stream);
  permute_fused(r.x, r.rank_of, r.rows, shape.tokens, shape.topk, shape.hidden, 0, gpu.stream);
  gpu.sync();
  return r;
}

/// The stable sort that the device must reproduce.
double sort_error(const Gpu& gpu, const Routed& r) {
  std::vector<int> order(static_cast<std::size_t>(r.pairs()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return r.chosen[static_cast<std::size_t>(a)] < r.chosen[static_cast<std::size_t>(b)];
  });
  Numbers want(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    want[static_cast<std::size_t>(order[i])] = static_cast<double>(i);
  return rel_error(to_host(gpu, r.rank_of, order.size()), want);
}

constexpr std::size_t kCheckedTokens = 32;

double permute_error(const Gpu& gpu, const Routed& r) {
  const auto width = static_cast<std::size_t>(r.shape.hidden),
             topk = static_cast<std::size_t>(r.shape.topk);
  const Numbers ranks = to_host(gpu, r.rank_of, kCheckedTokens * topk);
  double worst = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    worst = std::max(
        worst, rel_error(to_host(gpu, r.rows + static_cast<std::size_t>(ranks[i]) * width, width),
                         to_host(gpu, r.x + i / topk * width, width)));
  return worst;
}

/// `weights` are per (token, slot), or per row in expert order.
double unpermute_error(const Gpu& gpu, const Routed& r, bool is_fused) {
  const auto width = static_cast<std::size_t>(r.shape.hidden),
             topk = static_cast<std::size_t>(r.shape.topk);
  const Numbers ranks = to_host(gpu, r.rank_of, kCheckedTokens * topk),
                probs = to_host(gpu, r.probs, kCheckedTokens * topk);
  const Numbers row_probs = to_host(gpu, r.row_probs, static_cast<std::size_t>(r.pairs()));
  double worst = 0;
  for (std::size_t t = 0; t < kCheckedTokens; ++t) {
    Numbers want(width, 0.0);
    for (std::size_t k = 0; k < topk; ++k) {
      const auto rank = static_cast<std::size_t>(ranks[t * topk + k]);
      const Numbers row = to_host(gpu, r.rows + rank * width, width);
      for (std::size_t c = 0; c < width; ++c)
        want[c] += row[c] * (is_fused ? probs[t * topk + k] : row_probs[rank]);
    }
    worst = std::max(worst, rel_error(to_host(gpu, r.back + t * width, width), want));
  }
  return worst;
}

struct Move {
  const char* cls;
  bool is_fused;
  void (*launch)(const Routed&, cudaStream_t);
  double (*error)(const Gpu&, const Routed&);
};

const Move kMoves[] = {
    {"sort", true,
     [](const Routed& r, cudaStream_t s) {
       sort_by_expert(r.expert_of, r.rank_of, r.offsets, r.scratch, r.shape.tokens, r.shape.topk,
                      r.shape.experts, s);
     },
     sort_error},
    {"permute", true,
     [](const Routed& r, cudaStream_t s) {
       permute_fused(r.x, r.rank_of, r.rows, r.shape.tokens, r.shape.topk, r.shape.hidden,
                     r.shape.sms, s);
     },
     permute_error},
    {"permute", false,
     [](const Routed& r, cudaStream_t s) {
       permute_gather(r.x, r.source_of, r.rows, r.pairs(), r.shape.hidden, s);
     },
     permute_error},
    {"unpermute", true,
     [](const Routed& r, cudaStream_t s) {
       unpermute_fused(r.rows, r.rank_of, r.probs, r.back, r.shape.tokens, r.shape.topk,
                       r.shape.hidden, r.shape.sms, s);
     },
     [](const Gpu& g, const Routed& r) { return unpermute_error(g, r, true); }},
    {"unpermute", false,
     [](const Routed& r, cudaStream_t s) {
       unpermute_scatter(r.rows, r.source_of, r.row_probs, r.scaled, r.sums, r.back, r.pairs(),
                         r.shape.tokens, r.shape.hidden, s);
     },
     [](const Gpu& g, const Routed& r) { return unpermute_error(g, r, false); }},
};

Work prepare(Gpu& gpu, const RoutedShape& shape, const Move& move) {
  Work work;
  work.copies = gpu.copies_beyond_l2(static_cast<std::size_t>(shape.tokens) * shape.hidden *
                                     (shape.topk + 1) * 2);
  std::vector<Routed> sets;
  for (int i = 0; i < work.copies; ++i)
    sets.push_back(take(gpu, shape, static_cast<unsigned>(3 * i + 1), !move.is_fused));
  move.launch(sets[0], gpu.stream);
  work.rel_error = require_error_below(move.error(gpu, sets[0]), 1e-2);
  work.launch = [sets, &move](cudaStream_t s, int copy) {
    move.launch(sets[static_cast<std::size_t>(copy)], s);
  };
  return work;
}

}  // namespace

void measure_permute(Bench& bench) {
  const auto measure = [&](const Move& move, const RoutedShape& shape) {
    Kernel kernel{move.cls,
                  {{"rows", double(shape.tokens)},
                   {"cols", double(shape.hidden)},
                   {"topk", double(shape.topk)},
                   {"experts", double(shape.experts)},
                   {"fused", move.is_fused ? 1.0 : 0.0},
                   {"precision", "bf16"}},
                  "moecast"};
    if (shape.sms > 0) kernel.keys["sms"] = double(shape.sms);
    bench.measure(kernel, {Mode::sustained}, [&] { return prepare(bench.gpu, shape, move); });
  };
  for (const Move& move : kMoves) {
    for (const RoutedShape& shape : permute_shapes(bench.grid)) measure(move, shape);
    if (!move.is_fused || std::string(move.cls) == "sort") continue;
    for (const RoutedShape& shape : permute_shapes_on_some_sms(bench.grid)) measure(move, shape);
  }
}

}  // namespace moecast::cuda
