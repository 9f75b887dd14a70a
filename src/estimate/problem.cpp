#include "estimate/problem.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/document.hpp"
#include "moecast/model_io.hpp"

namespace moecast {
namespace {

bool on(const Software& s, const char* name, bool fallback) {
  const auto found = s.features.find(name);
  return found == s.features.end() ? fallback : found->second;
}

/// Bridge's presets switch fp8_param_gather on for these recipes unless the run says otherwise.
bool gathers_fp8(const Run& run) {
  const Precision p = run.layout.precision;
  return p == Precision::mxfp8 || p == Precision::fp8_tensorwise || p == Precision::fp8_delayed || p == Precision::nvfp4;
}

Features read_features(const Software& s, const Stack& stack, const Run& run) {
  const Layout& l = run.layout;
  Features f;
  f.transformer_engine = stack.transformer_engine;
  f.router_fusion = on(s, "router_fusion", false);
  f.permute_fusion = on(s, "permute_fusion", false);
  f.rope_fusion = on(s, "rope_fusion", stack.transformer_engine);
  f.fused_grouped_mlp = on(s, "fused_grouped_mlp", false);
  f.grouped_mm = on(s, "grouped_mm", false);
  f.sequential_experts = on(s, "sequential_experts", false);
  f.unfused_attention = on(s, "unfused_attention", false);
  f.static_dispatch = on(s, "static_dispatch", false) || on(s, "paged_stash", false) ||
                      l.cuda_graph_impl == CudaGraphImpl::full_iteration;
  f.fp8_attention = on(s, "fp8_attention", false);
  f.fp8_output_proj = on(s, "fp8_output_proj", false);
  f.fp8_param_gather = on(run.software, "fp8_param_gather", gathers_fp8(run));
  f.te_cross_entropy = on(s, "te_cross_entropy", stack.transformer_engine);
  return f;
}

/// Distinct layer kinds, decoder first.
void index_classes(Problem& p) {
  const auto class_of = [&](const LayerKind& kind) {
    const auto found = std::find(p.classes.begin(), p.classes.end(), kind);
    if (found != p.classes.end()) return static_cast<int>(found - p.classes.begin());
    p.classes.push_back(kind);
    return static_cast<int>(p.classes.size()) - 1;
  };
  for (const LayerKind& kind : p.model.layers) p.class_of_layer.push_back(class_of(kind));
  for (const LayerKind& kind : p.model.mtp_pattern) p.mtp_classes.push_back(class_of(kind));
}

/// Rows of the busiest EP rank over the mean, from a histogram of tokens per expert (experts in order, E / EP per rank).
double histogram_imbalance(const std::vector<double>& tokens, int ep) {
  double total = 0;
  for (const double t : tokens) total += t;
  if (total <= 0 || ep <= 0) return 1;
  const std::size_t per_rank = std::max<std::size_t>(1, tokens.size() / static_cast<std::size_t>(ep));
  double worst = 0;
  for (std::size_t first = 0; first < tokens.size(); first += per_rank) {
    double rank = 0;
    for (std::size_t i = first; i < std::min(tokens.size(), first + per_rank); ++i) rank += tokens[i];
    worst = std::max(worst, rank);
  }
  return worst * ep / total;
}

double imbalance_of(const Run& run) {
  switch (run.routing.kind) {
    case Routing::Kind::force_balance: return 1;
    case Routing::Kind::imbalance: return run.routing.imbalance;
    case Routing::Kind::tokens_per_expert: return histogram_imbalance(run.routing.tokens_per_expert, run.layout.ep);
  }
  return 1;
}

void append(Diagnostics& to, const Diagnostics& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

Result<Problem> make_problem(const Run& run) {
  Diagnostics problems;
  auto model = load_model(run.model, run.model_overrides, run.base_dir);
  append(problems, model.problems());
  auto system = load_system(run.system);
  append(problems, system.problems());
  auto stack = load_stack(run.software.container.empty() ? "current" : run.software.container);
  append(problems, stack.problems());
  if (!problems.empty()) return problems;

  auto cluster = Cluster::build(system.value(), run.gpus, run.gpus_used_per_domain);
  append(problems, cluster.problems());
  const bool own_profile = run.system.ends_with(".yaml") || run.system.ends_with(".yml") || run.system.ends_with(".json");
  auto profile = load_profile(system.value().name);
  if (own_profile) {
    if (auto calibrated = load_profile(run.system)) profile = std::move(calibrated);
  }
  append(problems, profile.problems());
  if (!problems.empty()) return problems;

  Problem p{.run = run, .model = model.take(), .cluster = cluster.take(), .profile = profile.take(), .stack = stack.value().stack};
  p.software = complete_software(run.software, p.stack);
  p.features = read_features(p.software, p.stack, run);
  p.world = run.gpus;
  p.seq_length = run.seq_length;
  p.global_batch_size = run.global_batch_size;
  p.imbalance = imbalance_of(run);
  if (const auto budget = run.software.env.find("moe_expert_rank_capacity_factor"); budget != run.software.env.end()) {
    p.dispatch_capacity = std::max(1.0, std::atof(budget->second.c_str()));
  }
  index_classes(p);
  for (const std::string& w : p.model.warnings) p.warnings.push_back({"model", w});
  if (!stack.value().exact) {
    p.warnings.push_back({"stack", "'" + run.software.container + "' is read as stack " + p.stack.name + " (nearest by date)"});
  }
  return p;
}

}  // namespace moecast
