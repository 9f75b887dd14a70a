#include "topology/parameter_names.hpp"

namespace moecast {
namespace {

constexpr const char* kBackends[] = {"alltoall", "allgather", "deepep", "hybridep"};

/// Names of Stream in its order: memory-bound, moves of routed rows, quantisation recipes.
constexpr const char* kStreams[] = {"elementwise", "rope", "activation", "norm", "norm_backward",
                                    "loss",        "adam", "router",     "sort"};
constexpr const char* kMoves[] = {"permute", "unpermute"};
constexpr const char* kRecipes[] = {"fp8_delayed", "fp8_tensorwise", "fp8_blockwise", "mxfp8",
                                    "nvfp4"};
constexpr int kFirstMove = static_cast<int>(Stream::permute);
constexpr int kFirstRecipe = static_cast<int>(Stream::fp8_delayed);

using Locate = double* (*)(Calibration&, int);

struct Builder {
  std::vector<Parameter> rows;
  void one(const char* path, const char* unit, const char* meaning, double low, double high,
           Locate at) {
    rows.push_back({path, unit, meaning, low, high, at, 0});
  }
  template <std::size_t N>
  void each(const std::string& section, const char* const (&names)[N], const std::string& field,
            const char* unit, const char* meaning, double low, double high, Locate at) {
    for (std::size_t i = 0; i < N; ++i) {
      rows.push_back({section + "." + names[i] + "." + field, unit, meaning, low, high, at,
                      static_cast<int>(i)});
    }
  }
};

void gemm_rows(Builder& b) {
  b.each("gemm", kPipeNames, "launch_us", "us", "start and drain of one kernel", 0.5, 30,
         [](Calibration& c, int i) { return &c.gemm[i].launch_us; });
  b.each("gemm", kPipeNames, "efficiency", "fraction", "of the dense peak at sustained clocks", 0.1,
         1, [](Calibration& c, int i) { return &c.gemm[i].efficiency; });
  b.each("gemm", kPipeNames, "k_half", "elements", "fixed cost per tile in elements of K", 0, 4000,
         [](Calibration& c, int i) { return &c.gemm[i].k_half; });
  b.each("gemm", kPipeNames, "tile_edge", "elements",
         "an a x b tile waits for its operands where edge (1/a + 1/b) > 1", 0, 400,
         [](Calibration& c, int i) { return &c.gemm[i].tile_edge; });
  b.each("gemm", kPipeNames, "wave_quantization", "fraction", "share of a tail wave that is lost",
         0, 1, [](Calibration& c, int i) { return &c.gemm[i].wave_quantization; });
  b.each("gemm", kPipeNames, "bandwidth_fraction", "fraction", "of HBM when streaming operands",
         0.1, 1, [](Calibration& c, int i) { return &c.gemm[i].bandwidth_fraction; });
  b.each("gemm", kPipeNames, "dgrad_ratio", "ratio", "efficiency against forward", 0.5, 1.3,
         [](Calibration& c, int i) { return &c.gemm[i].dgrad_ratio; });
  b.each("gemm", kPipeNames, "wgrad_ratio", "ratio", "efficiency against forward, accumulating",
         0.5, 1.3, [](Calibration& c, int i) { return &c.gemm[i].wgrad_ratio; });
  b.one("gemm.accumulate_fraction", "fraction", "of HBM, wgrad that adds into the fp32 gradient",
        0.1, 1, [](Calibration& c, int) { return &c.accumulate_fraction; });
  b.one("gemm.burst_gain", "ratio",
        "rate over the sustained one when tensor cores work a small share of the time", 0, 0.6,
        [](Calibration& c, int) { return &c.burst_gain; });
  b.one("gemm.fp32_tflops", "TFLOPS", "router GEMM in fp32", 5, 1000,
        [](Calibration& c, int) { return &c.fp32_gemm_tflops; });
  b.each("grouped_gemm", kPipeNames, "efficiency_ratio", "ratio",
         "grouped against dense, forward and dgrad", 0.2, 1.5,
         [](Calibration& c, int i) { return &c.grouped[i].efficiency_ratio; });
  b.each("grouped_gemm", kPipeNames, "wgrad_ratio", "ratio", "grouped against dense, wgrad", 0.2,
         1.5, [](Calibration& c, int i) { return &c.grouped[i].wgrad_ratio; });
  b.each("grouped_gemm", kPipeNames, "launch_us_per_group", "us",
         "device time per expert GEMM, multi-stream", 0, 20,
         [](Calibration& c, int i) { return &c.grouped[i].launch_us_per_group; });
  b.each("grouped_gemm", kPipeNames, "fused_efficiency_ratio", "ratio",
         "one launch for all experts against multi-stream", 0.5, 2,
         [](Calibration& c, int i) { return &c.grouped[i].fused_efficiency_ratio; });
  b.each("grouped_gemm", kPipeNames, "few_rows_ratio", "ratio",
         "one launch, at most 128 rows per expert", 0.2, 1.2,
         [](Calibration& c, int i) { return &c.grouped[i].few_rows_ratio; });
  b.each("grouped_gemm", kPipeNames, "wave_quantization", "fraction",
         "one launch, share of a tail wave that is lost", 0, 1,
         [](Calibration& c, int i) { return &c.grouped[i].wave_quantization; });
  b.each("grouped_gemm", kPipeNames, "single_launch_us", "us", "start of one launch for all", 0.5,
         60, [](Calibration& c, int i) { return &c.grouped[i].single_launch_us; });
}

void attention_rows(Builder& b) {
  b.each("attention", kHeadNames, "forward_efficiency", "fraction",
         "of the BF16 peak, causal FLOPs", 0.05, 1,
         [](Calibration& c, int i) { return &c.attention[i].forward_efficiency; });
  b.each("attention", kHeadNames, "backward_efficiency", "fraction",
         "of the BF16 peak, 2.5 x the causal FLOPs", 0.05, 1,
         [](Calibration& c, int i) { return &c.attention[i].backward_efficiency; });
  b.one("attention.launch_us", "us", "one attention kernel's fixed time", 0.5, 40,
        [](Calibration& c, int) { return &c.attention_launch_us; });
  b.one("attention.tail", "tiles", "of a tile over all keys that the other SMs wait for at the end",
        0, 4, [](Calibration& c, int) { return &c.attention_tail; });
  b.each("attention", kHeadNames, "forward_s_half", "tokens", "context lost per sequence", 0, 4000,
         [](Calibration& c, int i) { return &c.attention[i].forward_s_half; });
  b.each("attention", kHeadNames, "backward_s_half", "tokens", "the same in backward", 0, 4000,
         [](Calibration& c, int i) { return &c.attention[i].backward_s_half; });
  b.one("attention.fp8_speedup", "ratio", "FP8 attention against BF16", 1, 2,
        [](Calibration& c, int) { return &c.attention_fp8_speedup; });
  b.one("attention.sink_slowdown", "ratio", "learnt softmax sinks, BF16", 1, 8,
        [](Calibration& c, int) { return &c.attention_sink_slowdown; });
  b.one("attention.sink_fp8_slowdown", "ratio", "learnt softmax sinks, FP8 kernels", 1, 8,
        [](Calibration& c, int) { return &c.attention_sink_fp8_slowdown; });
  b.one("attention.unfused_bytes", "bytes per score", "unfused attention, forward; backward twice",
        4, 60, [](Calibration& c, int) { return &c.attention_unfused_bytes; });
  b.one("attention.scan_bandwidth_fraction", "fraction", "of HBM, Mamba-2 and gated-delta scans",
        0.02, 1, [](Calibration& c, int) { return &c.scan_bandwidth_fraction; });
}

void memory_rows(Builder& b) {
  b.each("memory_bound", kStreams, "start_us", "us", "start and drain of one kernel", 0.5, 60,
         [](Calibration& c, int i) { return &c.stream[i].start_us; });
  b.each("memory_bound", kStreams, "fraction", "fraction", "of HBM", 0.01, 1.1,
         [](Calibration& c, int i) { return &c.stream[i].fraction; });
  b.each("memory_bound", kStreams, "row_bytes", "bytes", "what a row costs beside its bytes", 0,
         200000, [](Calibration& c, int i) { return &c.stream[i].row_bytes; });
  b.each("memory_bound", kStreams, "row_gb_per_s", "GB/s", "at which a block streams its row",
         0.001, 1e4, [](Calibration& c, int i) { return &c.stream[i].row_gb_per_s; });
  b.one("memory_bound.kernel_floor_us", "us", "shortest kernel", 1, 12,
        [](Calibration& c, int) { return &c.kernel_floor_us; });
  b.each("permute", kMoves, "start_us", "us", "start and drain of one kernel", 0.5, 60,
         [](Calibration& c, int i) { return &c.stream[kFirstMove + i].start_us; });
  b.each("permute", kMoves, "fraction", "fraction", "of HBM", 0.05, 1.1,
         [](Calibration& c, int i) { return &c.stream[kFirstMove + i].fraction; });
  b.each("permute", kMoves, "gb_per_s_per_sm", "GB/s", "one SM of a kernel that may use few", 1,
         400, [](Calibration& c, int i) { return &c.stream[kFirstMove + i].gb_per_s_per_sm; });
  b.one("permute.permute.unfused_factor", "ratio", "bytes moved unfused against fused", 1, 20,
        [](Calibration& c, int) { return &c.unfused_permute_factor; });
  b.one("permute.unpermute.unfused_factor", "ratio", "scatter-adds in fp32 against fused", 1, 20,
        [](Calibration& c, int) { return &c.unfused_unpermute_factor; });
  b.each("quantize", kRecipes, "start_us", "us", "start and drain of its kernels", 0.5, 60,
         [](Calibration& c, int i) { return &c.stream[kFirstRecipe + i].start_us; });
  b.each("quantize", kRecipes, "fraction", "fraction", "of HBM, both copies that training needs",
         0.05, 1.2, [](Calibration& c, int i) { return &c.stream[kFirstRecipe + i].fraction; });
}

void link_rows(Builder& b) {
  b.each("collectives.nvlink", kCollectiveNames, "latency_us", "us", "per operation", 1, 200,
         [](Calibration& c, int i) { return &c.nvlink[i].latency_us; });
  b.each("collectives.nvlink", kCollectiveNames, "latency_us_per_rank", "us", "more per rank", 0,
         20, [](Calibration& c, int i) { return &c.nvlink[i].latency_us_per_rank; });
  b.each("collectives.nvlink", kCollectiveNames, "bandwidth_fraction", "fraction",
         "of NVLink per direction", 0.1, 1.2,
         [](Calibration& c, int i) { return &c.nvlink[i].bandwidth_fraction; });
  b.each("collectives.nvlink", kCollectiveNames, "ramp_us", "us", "more per large message", 0, 200,
         [](Calibration& c, int i) { return &c.nvlink[i].ramp_us; });
  b.each("collectives.nvlink", kCollectiveNames, "ramp_mib", "MiB",
         "message that pays half of ramp_us", 0.001, 100,
         [](Calibration& c, int i) { return &c.nvlink[i].ramp_mib; });
  b.each("collectives.nvlink", kCollectiveNames, "own_share", "ratio",
         "a rank's own part of the buffer against a byte on the link", 0, 2,
         [](Calibration& c, int i) { return &c.nvlink[i].own_share; });
  b.each("collectives.network", kCollectiveNames, "latency_us", "us", "per operation", 1, 500,
         [](Calibration& c, int i) { return &c.network[i].latency_us; });
  b.each("collectives.network", kCollectiveNames, "latency_us_per_rank", "us", "more per rank", 0,
         20, [](Calibration& c, int i) { return &c.network[i].latency_us_per_rank; });
  b.each("collectives.network", kCollectiveNames, "bandwidth_fraction", "fraction",
         "of the NIC line", 0.05, 1,
         [](Calibration& c, int i) { return &c.network[i].bandwidth_fraction; });
  b.each("collectives.network", kCollectiveNames, "ramp_us", "us", "more per large message", 0, 200,
         [](Calibration& c, int i) { return &c.network[i].ramp_us; });
  b.each("collectives.network", kCollectiveNames, "ramp_mib", "MiB",
         "message that pays half of ramp_us", 0.001, 100,
         [](Calibration& c, int i) { return &c.network[i].ramp_mib; });
  b.each("dispatch", kBackends, "latency_us", "us",
         "per dispatch or combine call; alltoall: beyond the start of the collective", 0.1, 500,
         [](Calibration& c, int i) { return &c.dispatch[i].latency_us; });
  b.each("dispatch", kBackends, "nvlink_fraction", "fraction", "of NVLink per direction", 0.1, 1,
         [](Calibration& c, int i) { return &c.dispatch[i].nvlink_fraction; });
  b.each("dispatch", kBackends, "nic_fraction", "fraction", "of the NIC line", 0.05, 1,
         [](Calibration& c, int i) { return &c.dispatch[i].nic_fraction; });
  b.each("dispatch", kBackends, "gb_per_s_per_sm", "GB/s",
         "one SM of the dispatch kernel; 0 = not limited", 0, 200,
         [](Calibration& c, int i) { return &c.dispatch[i].gb_per_s_per_sm; });
  b.each("dispatch", kBackends, "combine_gb_per_s_per_sm", "GB/s",
         "one SM of the combine kernel; 0 = not limited", 0, 200,
         [](Calibration& c, int i) { return &c.dispatch[i].combine_gb_per_s_per_sm; });
  b.each("dispatch", kBackends, "rank_us", "us", "one SM, per token and rank of the NVLink domain",
         0, 2, [](Calibration& c, int i) { return &c.dispatch[i].rank_us; });
  b.each("dispatch", kBackends, "network_row_us", "us", "one SM, per row sent to another domain", 0,
         20, [](Calibration& c, int i) { return &c.dispatch[i].network_row_us; });
  b.each("dispatch", kBackends, "network_us_per_sm", "us",
         "per call and SM across domains: queue pairs and their flags", 0, 20,
         [](Calibration& c, int i) { return &c.dispatch[i].network_us_per_sm; });
}

void host_rows(Builder& b) {
  b.one("contention.compute_per_sm_share", "ratio",
        "compute slow-down per share of SMs that communication takes", 0, 3,
        [](Calibration& c, int) { return &c.contention_compute_per_sm; });
  b.one("contention.comm", "ratio", "communication beside compute", 1, 2,
        [](Calibration& c, int) { return &c.contention_comm; });
  b.one("launch.host_us", "us", "one eager kernel, forward: Python, framework, driver", 1, 80,
        [](Calibration& c, int) { return &c.host_launch_us; });
  b.one("launch.backward_factor", "ratio", "a backward launch against a forward one", 0.1, 1.5,
        [](Calibration& c, int) { return &c.host_backward_factor; });
  b.one("launch.linear_launches", "launches", "host work of one TE linear", 0.5, 10,
        [](Calibration& c, int) { return &c.host_linear_launches; });
  b.one("launch.expert_launches", "launches",
        "host work of one expert's GEMM in a multi-stream grouped linear", 0.1, 10,
        [](Calibration& c, int) { return &c.host_expert_launches; });
  b.one("launch.quantize_launches", "launches", "more per quantised operand", 0, 10,
        [](Calibration& c, int) { return &c.host_quantize_launches; });
  b.one("launch.collective_launches", "launches", "host work of one NCCL call", 0.5, 20,
        [](Calibration& c, int) { return &c.host_collective_launches; });
  b.one("launch.overlap_factor", "ratio", "host work under EP overlap", 1, 4,
        [](Calibration& c, int) { return &c.host_overlap_factor; });
  b.one("launch.graph_us", "us", "one CUDA-graph replay of a layer scope", 1, 500,
        [](Calibration& c, int) { return &c.graph_launch_us; });
  b.one("launch.sync_us", "us", "host wakes after a device-to-host wait", 1, 200,
        [](Calibration& c, int) { return &c.sync_us; });
  b.one("launch.step_fixed_ms", "ms", "once per step, exposed", 0, 500,
        [](Calibration& c, int) { return &c.step_fixed_ms; });
  b.one("offload.link_fraction", "fraction", "of the measured host link", 0.1, 1.3,
        [](Calibration& c, int) { return &c.host_link_fraction; });
  b.one("offload.latency_us", "us", "one copy to or from the host", 0, 100,
        [](Calibration& c, int) { return &c.host_link_latency_us; });
  b.one("offload.host_adam_gb_per_s", "GB/s", "CPU optimizer, state bytes per GPU", 0.5, 500,
        [](Calibration& c, int) { return &c.host_adam_gb_per_s; });
}

std::vector<Parameter> build() {
  Builder b;
  gemm_rows(b);
  attention_rows(b);
  memory_rows(b);
  link_rows(b);
  host_rows(b);
  return std::move(b.rows);
}

}  // namespace

const std::vector<Parameter>& parameter_table() {
  static const std::vector<Parameter> table = build();
  return table;
}

}  // namespace moecast
