#include "report/layout_words.hpp"

#include <fmt/format.h>

#include <vector>

#include "layout/enum_names.hpp"

namespace moecast {
namespace {

std::string or_dash(const std::vector<std::string>& words) {
  return words.empty() ? "-" : fmt::to_string(fmt::join(words, "+"));
}

std::string overlap_words(const Layout& layout) {
  std::vector<std::string> words;
  if (layout.overlap_moe_expert_parallel_comm) words.emplace_back("ep");
  if (layout.delay_wgrad_compute) words.emplace_back("wgrad");
  if (layout.moe_shared_expert_overlap) words.emplace_back("shared");
  if (layout.tp_comm_overlap) words.emplace_back("tp");
  return or_dash(words);
}

std::string recompute_words(const Layout& layout) {
  switch (layout.recompute_granularity) {
    case RecomputeGranularity::none:
      return "-";
    case RecomputeGranularity::selective:
      return or_dash(module_names(layout.recompute_modules));
    case RecomputeGranularity::full:
      break;
  }
  return fmt::format("full({},{})", enum_text(layout.recompute_method),
                     layout.recompute_num_layers);
}

std::string offload_words(const Layout& layout) {
  std::vector<std::string> words = module_names(layout.offload_modules);
  if (!words.empty() && layout.offload_fraction < 1.0)
    words.back() += fmt::format(" {:g}", layout.offload_fraction);
  if (layout.optimizer_offload_fraction > 0)
    words.push_back(fmt::format("optimizer {:g}", layout.optimizer_offload_fraction));
  if (layout.cpu_offloading_num_layers > 0)
    words.push_back(fmt::format("{} layers", layout.cpu_offloading_num_layers));
  return or_dash(words);
}

std::string graph_words(const Layout& layout) {
  switch (layout.cuda_graph_impl) {
    case CudaGraphImpl::none:
      return "-";
    case CudaGraphImpl::full_iteration:
      return "full_iteration";
    case CudaGraphImpl::local:
    case CudaGraphImpl::transformer_engine:
      break;
  }
  const bool te = layout.cuda_graph_impl == CudaGraphImpl::transformer_engine;
  const std::vector<std::string> scope = module_names(layout.cuda_graph_scope);
  return (te ? "te:" : "local:") + (scope.empty() ? "layer" : or_dash(scope));
}

}  // namespace

LayoutWords layout_words(const Run& run) {
  const Layout& layout = run.layout;
  return {.precision = to_string(layout.precision),
          .dispatcher = to_string(layout.dispatcher),
          .overlap = overlap_words(layout),
          .recompute = recompute_words(layout),
          .offload = offload_words(layout),
          .graph = graph_words(layout)};
}

int data_parallel(const Run& run) {
  const Layout& layout = run.layout;
  return layout.tp * layout.cp * layout.pp > 0 ? layout.dp(run.gpus) : 0;
}

int expert_data_parallel(const Run& run) {
  const Layout& layout = run.layout;
  return layout.etp * layout.ep * layout.pp > 0 ? layout.edp(run.gpus) : 0;
}

int num_microbatches(const Run& run) {
  const int samples = run.layout.micro_batch_size * data_parallel(run);
  return samples > 0 ? run.global_batch_size / samples : 0;
}

}  // namespace moecast
