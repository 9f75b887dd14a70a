// One layout: its tables, memory and bound, exact step, and the schedule alone.
#include <benchmark/benchmark.h>

#include "dsv3.hpp"
#include "estimate/evaluate.hpp"

namespace {

using namespace moecast;

void table_build(benchmark::State& state) {
  const Problem problem = bench::dsv3_problem();
  const ShardKey key = shard_key(bench::dsv3_layout());
  for (auto _ : state) benchmark::DoNotOptimize(make_shard_tables(problem, key));
}
BENCHMARK(table_build)->Unit(benchmark::kMicrosecond);

void evaluate_dsv3_cold(benchmark::State& state) {
  const Problem problem = bench::dsv3_problem();
  const Layout layout = bench::dsv3_layout();
  for (auto _ : state) {
    Evaluator evaluator(problem);
    benchmark::DoNotOptimize(evaluator.evaluate(layout, Depth::exact));
  }
}
BENCHMARK(evaluate_dsv3_cold)->Unit(benchmark::kMicrosecond);

void evaluate_warm(benchmark::State& state, Depth depth) {
  const Problem problem = bench::dsv3_problem();
  const Layout layout = bench::dsv3_layout();
  Evaluator evaluator(problem);
  evaluator.evaluate(layout, depth);
  for (auto _ : state) benchmark::DoNotOptimize(evaluator.evaluate(layout, depth));
  state.SetItemsProcessed(state.iterations());  // layouts per second
}
void evaluate_dsv3_warm_bound(benchmark::State& state) { evaluate_warm(state, Depth::bound); }
void evaluate_dsv3_warm_exact(benchmark::State& state) { evaluate_warm(state, Depth::exact); }
BENCHMARK(evaluate_dsv3_warm_bound)->Unit(benchmark::kMicrosecond);
BENCHMARK(evaluate_dsv3_warm_exact)->Unit(benchmark::kMicrosecond);

const ScheduleShape kShape{.pp = 16, .vpp = 1, .microbatches = 256, .group = 16};
ScheduleTimes times_of(const ScheduleShape& shape) {
  ScheduleTimes times;
  times.forward.assign(static_cast<std::size_t>(shape.pp), 1e-2);
  times.backward.assign(static_cast<std::size_t>(shape.pp), 2e-2);
  times.backward.back() = 2.3e-2;
  times.p2p = 1e-4;
  times.p2p_blocks = true;
  return on_grid(shape, times);
}
void walk_pp16_m256(benchmark::State& state) {
  const ScheduleTimes times = times_of(kShape);
  for (auto _ : state) benchmark::DoNotOptimize(walk(kShape, times));
}
void walk_repeating_pp16_m256(benchmark::State& state) {
  const ScheduleTimes times = times_of(kShape);
  ScheduleWalker walker;
  for (auto _ : state) benchmark::DoNotOptimize(walker.walk(kShape, times));
}
BENCHMARK(walk_pp16_m256)->Unit(benchmark::kMicrosecond);
BENCHMARK(walk_repeating_pp16_m256)->Unit(benchmark::kMicrosecond);

}  // namespace
