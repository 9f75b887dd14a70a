#pragma once
/// One function per section of calibration, each in its own file.
#include "calibrate/cuda/bench.hpp"
#include "calibrate/cuda/world.hpp"

namespace moecast::cuda {

// On every GPU by itself.
void measure_launch(Bench& bench);
void measure_offload(Bench& bench);
void measure_memory(Bench& bench);
void measure_permute(Bench& bench);
void measure_gemm(Bench& bench);
void measure_grouped(Bench& bench);
void measure_attention(Bench& bench);
void measure_local_contention(Bench& bench);

// On all GPUs together; `bench` is that of the first.
void measure_collectives(Bench& bench, World& world);
void measure_dispatch(Bench& bench, World& world);
void measure_contention(Bench& bench, World& world);

}  // namespace moecast::cuda
