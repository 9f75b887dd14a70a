#include "layout/pipeline_plan.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "moecast/model_io.hpp"

namespace moecast {
namespace {

constexpr const char* kLayoutKey = "layout.pipeline_model_parallel_layout";

int num_layers(const ModelSpec& model) { return static_cast<int>(model.layers.size()); }

/// The plan whose stage i starts at layer cuts[i]; MTP and loss on the last stage.
PipelinePlan contiguous_plan(const ModelSpec& model, int pp, int vpp,
                             const std::vector<int>& cuts) {
  PipelinePlan plan;
  plan.pp = pp;
  plan.vpp = vpp;
  plan.mtp_num_layers = model.mtp_num_layers;
  plan.stages.resize(cuts.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const int end = i + 1 < cuts.size() ? cuts[i + 1] : num_layers(model);
    for (int layer = cuts[i]; layer < end; ++layer) plan.stages[i].layers.push_back(layer);
  }
  plan.stages.front().embedding = true;
  plan.stages.back().mtp = model.mtp_num_layers > 0;
  plan.stages.back().loss = true;
  return plan;
}

/// Loss of the main model and of every depth, and the MTP layers with their 2h -> h projection.
double last_stage_extra(const ModelSpec& model, int seq_length) {
  const double h = model.hidden_size;
  double depth = 12.0 * h * h;
  for (const LayerKind& layer : model.mtp_pattern) {
    depth += layer_model_flops_per_token(model, layer, seq_length);
  }
  const double depths = model.mtp_num_layers;
  return 6.0 * h * model.vocab_size * (1.0 + depths) + depths * depth;
}

Diagnostic problem(std::string message, std::string hint) {
  Diagnostic d;
  d.key = kLayoutKey;
  d.message = std::move(message);
  d.hint = std::move(hint);
  return d;
}

}  // namespace

bool even_split_divides(const ModelSpec& model, int pp, int vpp) {
  const int layers = num_layers(model);
  return pp > 0 && vpp > 0 && layers % pp == 0 && layers / pp % vpp == 0;
}

PipelinePlan even_split(const ModelSpec& model, int pp, int vpp) {
  const long stages = static_cast<long>(pp) * vpp;
  std::vector<int> cuts;
  for (long i = 0; i < stages; ++i)
    cuts.push_back(static_cast<int>(i * num_layers(model) / stages));
  return contiguous_plan(model, pp, vpp, cuts);
}

PipelinePlan balanced_split(const ModelSpec& model, int pp, int vpp, int seq_length) {
  std::vector<double> weights;
  for (const LayerKind& layer : model.layers) {
    weights.push_back(layer_model_flops_per_token(model, layer, seq_length));
  }
  const int layers = num_layers(model), stages = pp * vpp;
  std::vector<int> cuts =
      balanced_cuts(weights, std::min(stages, layers), last_stage_extra(model, seq_length));
  if (stages > layers) cuts.push_back(layers);
  if (stages > layers + 1) cuts.insert(cuts.begin(), 0);
  PipelinePlan plan = contiguous_plan(model, pp, vpp, cuts);
  plan.layout_string = to_layout_string(plan);
  return plan;
}

Result<PipelinePlan> plan_pipeline(const ModelSpec& model, const Layout& layout,
                                   const std::string& explicit_text, int seq_length) {
  const int pp = layout.pp;
  const int vpp = layout.vpp;
  const int layers = num_layers(model);
  if (pp < 1 || vpp < 1) {
    return problem(fmt::format("PP {} and VPP {} must be at least 1", pp, vpp), "use 1");
  }
  if (layout.pipeline_split == PipelineSplit::explicit_string) {
    return parse_pipeline_layout(explicit_text, model, pp, vpp > 1 ? vpp : 0);
  }
  if (even_split_divides(model, pp, vpp)) return even_split(model, pp, vpp);
  if (layout.pipeline_split == PipelineSplit::megatron) {
    return problem(
        fmt::format("{} layers do not split evenly over PP {} x VPP {}", layers, pp, vpp),
        "set pipeline_model_parallel_layout: auto, or choose PP and VPP that divide");
  }
  if (static_cast<long>(pp) * vpp > layers + kStagesWithoutLayers) {
    return problem(fmt::format("PP {} x VPP {} = {} stages, but the model has {} layers", pp, vpp,
                               static_cast<long>(pp) * vpp, layers),
                   "lower PP or VPP, or state a layout string with empty stages");
  }
  return balanced_split(model, pp, vpp, seq_length);
}

}  // namespace moecast
