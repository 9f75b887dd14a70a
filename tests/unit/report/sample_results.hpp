#pragma once
/// Hand-made results whose every figure differs, so that a writer that mixes two fields up is
/// caught.
#include "moecast/estimate.hpp"
#include "moecast/search.hpp"

namespace moecast::test {

inline Run sample_run() {
  Run run;
  run.model = "mixtral-8x7b";
  run.system = "dgx-h100";
  run.gpus = 64;
  run.seq_length = 4096;
  run.global_batch_size = 256;
  run.layout.tp = 2;
  run.layout.pp = 4;
  run.layout.ep = 8;
  return run;
}

inline RankMemory sample_rank(int rank, double first_gib) {
  RankMemory r;
  r.pp_rank = rank;
  r.weights = gibibytes(first_gib);
  r.gradients = gibibytes(first_gib + 1);
  r.optimizer = gibibytes(first_gib + 2);
  r.activations = gibibytes(first_gib + 3);
  r.dispatcher = gibibytes(0.25);
  r.cuda_graph = gibibytes(0.5);
  r.workspace = gibibytes(0.75);
  r.peak = gibibytes(4 * first_gib + 7.5);
  r.peak_reserved = gibibytes(4 * first_gib + 9.5);
  r.host = gibibytes(0.125);
  r.moment = "end of warm-up";
  r.detail = {"peak", r.peak, 0, "", {{"moe_act output", gibibytes(3), 12, "rows x width", {}}}};
  return r;
}

inline Estimate sample_estimate() {
  Estimate e;
  e.run = sample_run();
  e.fits = true;
  // 1 + 2 + ... + 256 ms: every subset has its own sum
  TimeBreakdown& t = e.time;
  t.compute = milliseconds(256);
  t.ep_comm_exposed = milliseconds(128);
  t.tp_comm_exposed = milliseconds(64);
  t.cp_comm_exposed = milliseconds(32);
  t.pp_comm_exposed = milliseconds(16);
  t.dp_comm_exposed = milliseconds(8);
  t.pipeline_bubble = milliseconds(4);
  t.host_exposed = milliseconds(2);
  t.optimizer = milliseconds(1);
  t.ep_comm_total = milliseconds(200);
  t.recompute = milliseconds(20);
  t.grouped_gemm = milliseconds(101);
  t.dense_gemm = milliseconds(52);
  t.attention = milliseconds(43);
  t.permute = milliseconds(31);
  t.memory_bound = milliseconds(22);
  t.quantize = milliseconds(7);
  e.step_time = milliseconds(511);
  e.step_time_p05 = milliseconds(480);
  e.step_time_p95 = milliseconds(560);
  e.tflops_per_gpu = 333.3;
  e.tokens_per_s_per_gpu = 32064;
  e.mfu_pct = 33.7;
  e.model_flops_per_token = 8e10;
  e.params_total = 46.7e9;
  e.params_active = 12.9e9;
  e.params_per_rank_max = 1.25e9;
  e.capacity = gibibytes(79);
  e.usable = gibibytes(77);
  e.ranks = {sample_rank(0, 5), sample_rank(1, 3), sample_rank(2, 2), sample_rank(3, 4)};
  e.largest_rank = 0;
  e.largest_rank_reason = "embedding";
  e.max_imbalance_that_fits = 1.75;
  e.wall = Wall::communication;
  e.ablation = {{"communication", milliseconds(190)}, {"host", milliseconds(3)}};
  e.critical_rank = 3;
  e.groups = {{"ep", 8, 2, gigabytes_per_second(45)}, {"cp", 1, 1, gigabytes_per_second(0)}};
  e.warnings = {{"SOME-RULE", "the message of a warning"}};
  e.advice = {{"moe.dispatcher=deepep", -8.1, 0.4}};
  e.trace = {{0, "comm", "dispatch", "chunk 0", milliseconds(2), milliseconds(1)},
             {0, "compute", "forward", "", milliseconds(0), milliseconds(2)},
             {1, "p2p", "send", "", milliseconds(3), microseconds(5)}};
  return e;
}

inline RankedLayout sample_layout(int pp, double step_ms) {
  RankedLayout layout;
  layout.run = sample_run();
  layout.run.layout.pp = pp;
  layout.step_time = milliseconds(step_ms);
  layout.tflops_per_gpu = 1e5 / step_ms;
  layout.peak = gibibytes(60);
  layout.peak_reserved = gibibytes(64);
  layout.wall = Wall::compute;
  layout.why = "least pipeline bubble";
  return layout;
}

inline SearchResult sample_search() {
  SearchResult r;
  r.candidates = 1200;
  r.legal = 300;
  r.evaluated = 290;
  r.fit = 100;
  r.simulated = 40;
  r.pruned = 10;
  r.elapsed_s = 0.5;
  r.any_fit = true;
  r.first_fit = sample_layout(8, 700);
  r.ranked = {sample_layout(4, 500), sample_layout(2, 600)};
  r.pareto = {sample_layout(4, 500)};
  r.rejected = {{"WORLD-EXPERT", 600}, {"memory", 190}, {"WORLD-ATTENTION", 300}};
  return r;
}

}  // namespace moecast::test
