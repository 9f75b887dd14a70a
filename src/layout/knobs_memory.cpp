// The rows of recompute, offload and cuda_graph.
#include "layout/knob_values.hpp"

namespace moecast {
namespace {

constexpr int kMaxLayers = 1024;

std::vector<Knob> recompute() {
  return {
      knob(
          {"recompute.granularity", "", "--recompute-granularity", "model.recompute_granularity",
           "none", "Recomputes nothing, the listed modules, or whole layers in the backward pass."},
          field(&Layout::recompute_granularity), ChoiceKind<RecomputeGranularity>{}),
      knob({"recompute.modules", "", "--recompute-modules", "model.recompute_modules", "[]",
            "Modules that selective recompute runs again."},
           field(&Layout::recompute_modules), ModulesKind<RecomputeModule>{}),
      knob({"recompute.method", "", "--recompute-method", "model.recompute_method", "null",
            "Full recompute: uniform = all layers in groups of num_layers, block = the first "
            "num_layers of each stage."},
           field(&Layout::recompute_method), ChoiceKind<RecomputeMethod>{}),
      knob({"recompute.num_layers", "", "--recompute-num-layers", "model.recompute_num_layers",
            "null", "Layers that the method of full recompute counts with."},
           field(&Layout::recompute_num_layers), IntegerKind{1, kMaxLayers, 0}),
  };
}

std::vector<Knob> offload() {
  return {
      knob({"offload.activation_modules", "", "--offload-modules", "model.offload_modules", "[]",
            "Modules whose inputs go to host memory between forward and backward "
            "(fine_grained_activation_offloading)."},
           field(&Layout::offload_modules), ModulesKind<OffloadModule>{}),
      knob({"offload.activation_fraction", "", "--activation-offload-fraction",
            "model.activation_offload_fraction", "1.0",
            "Share of the listed modules' activations that is offloaded."},
           field(&Layout::offload_fraction), NumberKind{0, 1}),
      knob({"offload.optimizer_fraction", "", "--optimizer-offload-fraction",
            "optimizer.optimizer_offload_fraction", "0.0",
            "Share of the optimizer states that lives and steps on the host (above 0: "
            "optimizer_cpu_offload)."},
           field(&Layout::optimizer_offload_fraction), NumberKind{0, 1}),
      knob({"offload.cpu_offloading_num_layers", "", "--cpu-offloading-num-layers",
            "model.cpu_offloading_num_layers", "0",
            "Layers whose activations are offloaded whole (cpu_offloading; pp = 1 only)."},
           field(&Layout::cpu_offloading_num_layers), IntegerKind{0, kMaxLayers}),
  };
}

std::vector<Knob> cuda_graph() {
  return {
      knob({"cuda_graph.impl", "", "--cuda-graph-impl", "model.cuda_graph_impl", "none",
            "Who captures CUDA graphs: nobody, Megatron-Core or Transformer Engine per layer, or "
            "one graph of the whole iteration."},
           field(&Layout::cuda_graph_impl), ChoiceKind<CudaGraphImpl>{}),
      knob({"cuda_graph.scope", "cuda_graph_scope", "--cuda-graph-modules",
            "model.cuda_graph_modules", "[]",
            "Modules that per-layer graphs hold; empty = the whole layer."},
           field(&Layout::cuda_graph_scope), ModulesKind<GraphModule>{}),
  };
}

}  // namespace

std::vector<Knob> memory_knobs() {
  std::vector<Knob> rows = recompute();
  for (auto section : {offload(), cuda_graph()})
    rows.insert(rows.end(), section.begin(), section.end());
  return rows;
}

}  // namespace moecast
