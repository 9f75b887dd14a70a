#pragma once
/// The benchmarks' problem: DeepSeek-V3 on 256 GB200 GPUs, as `./dev run` searches it.
#include <stdexcept>

#include "estimate/problem.hpp"

namespace moecast::bench {

inline Layout dsv3_layout() {
  Layout l;
  l.pp = 4;
  l.vpp = 4;
  l.ep = 64;
  l.precision = Precision::mxfp8;
  l.dispatcher = Dispatcher::hybridep;
  l.overlap_moe_expert_parallel_comm = true;
  l.recompute_granularity = RecomputeGranularity::selective;
  l.recompute_modules.add(RecomputeModule::mla_up_proj);
  return l;
}

inline Run dsv3_run() {
  Run run;
  run.model = "deepseek-v3";
  run.system = "gb200-nvl72";
  run.gpus = 256;
  run.seq_length = 4096;
  run.global_batch_size = 4096;
  run.layout = dsv3_layout();
  return run;
}

inline Problem dsv3_problem() {
  auto problem = make_problem(dsv3_run());
  if (!problem) throw std::runtime_error(to_string(problem.problems().front()));
  return problem.take();
}

}  // namespace moecast::bench
