// The main job: every layout of a real model on a real cluster.
#include <benchmark/benchmark.h>

#include "dsv3.hpp"
#include "moecast/search.hpp"

namespace {

using namespace moecast;

void search_256gpu(benchmark::State& state) {
  SearchRequest request;
  request.base = bench::dsv3_run();
  request.base.layout = {};
  request.precisions = {Precision::mxfp8};
  request.threads = 1;
  double candidates = 0;
  for (auto _ : state) {
    const auto result = search(request);
    if (!result || !result.value().any_fit) return state.SkipWithError("nothing was found");
    candidates += static_cast<double>(result.value().candidates);
  }
  state.counters["candidates"] = benchmark::Counter(candidates, benchmark::Counter::kIsRate);
}
BENCHMARK(search_256gpu)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
