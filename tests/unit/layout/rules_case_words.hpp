#pragma once
/// Short words for the changes that the cases make.
#include <initializer_list>
#include <string>

#include "rules_fixture.hpp"

namespace moecast::test {

using C = Candidate&;

inline void selective(C c, RecomputeModule m) {
  c.layout.recompute_granularity = RecomputeGranularity::selective;
  c.layout.recompute_modules.add(m);
}
inline void full(C c, RecomputeMethod method, int layers) {
  c.layout.recompute_granularity = RecomputeGranularity::full;
  c.layout.recompute_method = method;
  c.layout.recompute_num_layers = layers;
}
inline void graph(C c, CudaGraphImpl impl, std::initializer_list<GraphModule> scope = {}) {
  c.layout.cuda_graph_impl = impl;
  for (GraphModule m : scope) c.layout.cuda_graph_scope.add(m);
}
inline void te_graph(C c, std::initializer_list<GraphModule> scope) {
  graph(c, CudaGraphImpl::transformer_engine, scope);
}
inline void overlap(C c) { c.layout.overlap_moe_expert_parallel_comm = true; }
inline void delayed(C c, const std::string& te) {
  overlap(c);
  c.layout.delay_wgrad_compute = true;
  c.run.software.transformer_engine = te;
}
inline void deepep(C c) { c.layout.dispatcher = Dispatcher::deepep; }
inline void hybridep(C c) { c.layout.dispatcher = Dispatcher::hybridep; }
inline void feature(C c, const std::string& name) { c.run.software.features[name] = true; }
inline void env(C c, const std::string& name, const std::string& value) {
  c.run.software.env[name] = value;
}
inline void no_tp(C c) {
  c.layout.tp = 1;
  c.global_batch_size = 128;
}
inline void dense(C c) {
  c.model.moe = {};
  for (LayerKind& l : c.model.layers) l.ffn = FfnKind::dense;
  c.layout.ep = 1;
}
inline void layout_string(C c, const std::string& text) {
  c.layout.pipeline_split = PipelineSplit::explicit_string;
  c.run.pipeline_model_parallel_layout = text;
}

using Cases = std::vector<RuleCase>;
Cases layout_cases();
Cases feature_cases();
Cases memory_cases();
Cases precision_cases();
Cases version_cases();

}  // namespace moecast::test
