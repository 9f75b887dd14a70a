// What every command pays before it forecasts: reading the model, the system and its profile.
#include <benchmark/benchmark.h>

#include <string>

#include "moecast/calibration.hpp"
#include "moecast/cluster.hpp"
#include "moecast/model_io.hpp"

namespace {

using namespace moecast;

void import_config(benchmark::State& state) {
  for (auto _ : state) {
    const auto model = load_model("deepseek-v3", nlohmann::ordered_json::object(), "");
    if (!model) return state.SkipWithError("deepseek-v3 cannot be read");
    benchmark::DoNotOptimize(model);
  }
}
BENCHMARK(import_config)->Unit(benchmark::kMicrosecond);

void read_system(benchmark::State& state) {
  for (auto _ : state) {
    const auto system = load_system("gb200-nvl72");
    if (!system) return state.SkipWithError("gb200-nvl72 cannot be read");
    benchmark::DoNotOptimize(system);
  }
}
BENCHMARK(read_system)->Unit(benchmark::kMicrosecond);

}  // namespace
