// The main job: every layout of a real model on a real cluster; and its two passes alone, on one
// thread, as layouts per second.
#include <benchmark/benchmark.h>

#include "dsv3.hpp"
#include "moecast/search.hpp"
#include "search/enumerate.hpp"

namespace {

using namespace moecast;

SearchRequest request_of(int gpus, std::vector<Precision> precisions) {
  SearchRequest request;
  request.base = bench::dsv3_run();
  request.base.layout = {};
  request.base.gpus = gpus;
  request.base.global_batch_size = 16 * gpus;
  request.precisions = std::move(precisions);
  request.threads = 1;
  return request;
}

void searched(benchmark::State& state, const SearchRequest& request) {
  double candidates = 0;
  for (auto _ : state) {
    const auto result = search(request);
    if (!result || !result.value().any_fit) return state.SkipWithError("nothing was found");
    candidates += static_cast<double>(result.value().candidates);
  }
  state.counters["candidates"] = benchmark::Counter(candidates, benchmark::Counter::kIsRate);
}
void search_256gpu(benchmark::State& state) {
  searched(state, request_of(256, {Precision::mxfp8}));
}
using enum Precision;
void search_1024gpu_all(benchmark::State& state) {
  searched(state, request_of(1024, {bf16, fp8_tensorwise, fp8_blockwise, mxfp8, nvfp4}));
}
void search_16384gpu_all(benchmark::State& state) {
  searched(state, request_of(16384, {bf16, fp8_tensorwise, fp8_blockwise, mxfp8, nvfp4}));
}
BENCHMARK(search_256gpu)->Unit(benchmark::kMillisecond)->Iterations(1);
BENCHMARK(search_1024gpu_all)->Unit(benchmark::kMillisecond)->Iterations(1);
BENCHMARK(search_16384gpu_all)->Unit(benchmark::kMillisecond)->Iterations(1);

/// Memory and bound of every legal layout, one by one; time is per layout.
void scan_per_layout(benchmark::State& state) {
  const SearchRequest request = request_of(256, {Precision::mxfp8});
  const Problem problem = bench::dsv3_problem();
  const auto space = make_space(request, problem);
  const auto layouts = static_cast<benchmark::IterationCount>(
      enumerate(request, problem, space.value(), 1).evaluated);
  while (state.KeepRunningBatch(layouts))
    benchmark::DoNotOptimize(enumerate(request, problem, space.value(), 1));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(scan_per_layout)->Unit(benchmark::kMicrosecond);

/// The exact step of every layout that fits, as --exhaustive meets them, with its share of the
/// scan.
void simulate_per_layout(benchmark::State& state) {
  SearchRequest request = request_of(256, {Precision::mxfp8});
  request.exhaustive = true;
  const Problem problem = bench::dsv3_problem();
  const auto space = make_space(request, problem);
  const auto layouts = static_cast<benchmark::IterationCount>(
      enumerate(request, problem, space.value(), 1).steps.size());
  while (state.KeepRunningBatch(layouts))
    benchmark::DoNotOptimize(enumerate(request, problem, space.value(), 1));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(simulate_per_layout)->Unit(benchmark::kMicrosecond);

}  // namespace
