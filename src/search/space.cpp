#include "search/space.hpp"

#include <algorithm>

#include "layout/knobs.hpp"
#include "search/choices.hpp"

namespace moecast {
namespace {

std::vector<int> powers_of_two(int limit) {
  std::vector<int> values;
  for (int v = 1; v <= limit; v *= 2) values.push_back(v);
  return values;
}

std::vector<int> divisors(int of, int limit) {
  std::vector<int> values;
  for (int v = 1; v <= std::min(of, limit); ++v) {
    if (of % v == 0) values.push_back(v);
  }
  return values;
}

/// A mesh axis: the knob it sets and the values it takes.
struct MeshAxis {
  const char* key;
  int Layout::*field;
  std::vector<int> values;
};

/// Tensor parallelism inside a node; context parallelism down to 1024 tokens a rank; pipeline
/// stages and expert groups that divide the GPUs; chunks up to one layer each.
std::vector<MeshAxis> mesh_axes(const SearchRequest& request, const Problem& p) {
  const int gpus = p.world, layers = static_cast<int>(p.model.layers.size());
  const int experts = p.model.moe.num_moe_experts;
  std::vector<int> chunks;
  for (const int v : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24}) {
    if (v == 1 || 2 * v <= layers) chunks.push_back(v);
  }
  std::vector<int> ep{1}, etp{1};
  if (experts > 0) {
    ep.clear();
    for (const int v : divisors(gpus, 1024)) {
      if (experts % v == 0) ep.push_back(v);
    }
    etp = powers_of_two(std::min({4, p.system().gpus_per_node, gpus}));
  }
  std::vector<int> pp;
  for (const int v : divisors(gpus, std::min(layers, 64))) pp.push_back(v);
  const std::vector<int> batches = request.vary_micro_batch_size
                                       ? std::vector<int>{1, 2, 4, 8}
                                       : std::vector<int>{request.base.layout.micro_batch_size};
  return {{"layout.pipeline_model_parallel_size", &Layout::pp, pp},
          {"layout.tensor_model_parallel_size", &Layout::tp, powers_of_two(std::min(8, gpus))},
          {"layout.context_parallel_size", &Layout::cp,
           powers_of_two(std::clamp(p.seq_length / 1024, 1, 64))},
          {"layout.expert_tensor_parallel_size", &Layout::etp, etp},
          {"layout.expert_model_parallel_size", &Layout::ep, ep},
          {"layout.virtual_pipeline_model_parallel_size", &Layout::vpp, chunks},
          {"train.micro_batch_size", &Layout::micro_batch_size, batches}};
}

bool fixed(const SearchRequest& r, std::initializer_list<std::string_view> keys) {
  const auto named = [&](const std::string& name) {
    const Knob* knob = find_knob(name);
    return knob != nullptr && std::find(keys.begin(), keys.end(), knob->key) != keys.end();
  };
  return std::any_of(r.fix.begin(), r.fix.end(), [&](const auto& f) { return named(f.first); }) ||
         std::any_of(r.vary.begin(), r.vary.end(), [&](const auto& v) { return named(v.first); });
}

void inner_axes(Space& s, const SearchRequest& r, const Problem& p) {
  const Layout& base = r.base.layout;
  const bool moe = p.model.moe.num_moe_experts > 0;
  s.dispatchers = {{base.dispatcher, base.dispatcher_num_sms}};
  if (moe && !fixed(r, {"moe.dispatcher"})) {
    s.dispatchers = {{Dispatcher::alltoall, 0},
                     {Dispatcher::deepep, 0},
                     {Dispatcher::hybridep, base.dispatcher_num_sms}};
  }
  s.overlaps = {{base.overlap_moe_expert_parallel_comm, base.delay_wgrad_compute,
                 base.moe_shared_expert_overlap}};
  if (moe && !fixed(r, {"moe.overlap_moe_expert_parallel_comm", "moe.delay_wgrad_compute",
                        "moe.moe_shared_expert_overlap"})) {
    s.overlaps = {{false, false, false}, {true, false, false}, {true, true, false}};
    if (p.model.moe.moe_shared_expert_intermediate_size > 0)
      s.overlaps.push_back({false, false, true});
  }
  s.graphs = {{base.cuda_graph_impl, base.cuda_graph_scope}};
  if (!fixed(r, {"cuda_graph.impl", "cuda_graph.scope"})) s.graphs = graph_choices(p.model);
  s.recomputes = {{base.recompute_granularity, base.recompute_modules, base.recompute_method,
                   base.recompute_num_layers}};
  if (!fixed(r, {"recompute.granularity", "recompute.modules", "recompute.method",
                 "recompute.num_layers"})) {
    s.recomputes = recompute_choices(p.model);
  }
  s.offloads = {{base.offload_modules, base.optimizer_offload_fraction}};
  if (!fixed(r, {"offload.activation_modules", "offload.optimizer_fraction",
                 "offload.cpu_offloading_num_layers"})) {
    s.offloads = offload_choices(base, p.model);
  }
}

Layout neutral(Layout l) {
  l.dispatcher = Dispatcher::alltoall;
  l.overlap_moe_expert_parallel_comm = l.delay_wgrad_compute = l.moe_shared_expert_overlap = false;
  l.recompute_granularity = RecomputeGranularity::none;
  l.recompute_method = RecomputeMethod::none;
  l.recompute_num_layers = 0;
  l.recompute_modules = {};
  l.cuda_graph_impl = CudaGraphImpl::none;
  l.cuda_graph_scope = {};
  l.offload_modules = {};
  l.optimizer_offload_fraction = 0;
  return l;
}

/// Multiplies the meshes by one axis of values.
template <typename Values, typename Set>
void multiply(Space& s, const char* key, const Values& values, Set set) {
  std::vector<Layout> next;
  next.reserve(s.meshes.size() * values.size());
  for (const Layout& m : s.meshes) {
    for (const auto& v : values) {
      next.push_back(m);
      set(next.back(), v);
    }
  }
  s.meshes = std::move(next);
  s.axes.push_back({key, values.size()});
}

Diagnostic bad(const std::string& key, std::string message, std::string hint = "") {
  return {"", 0, 0, key, std::move(message), std::move(hint)};
}

/// --vary on any layout knob: a mesh-like axis through the knob table.
Diagnostics vary(Space& s, const SearchRequest& r) {
  Diagnostics problems;
  for (const auto& [name, texts] : r.vary) {
    const Knob* knob = find_knob(name);
    if (knob == nullptr) {
      problems.push_back(bad(name, "no such knob"));
      continue;
    }
    std::vector<Layout> next;
    for (const Layout& m : s.meshes) {
      for (const std::string& text : texts) {
        Run run = r.base;
        run.layout = m;
        Value v = Value::parse(text, nullptr, false);
        if (v.is_discarded()) v = text;
        const std::string wrong = knob->set(run, v);
        if (!wrong.empty() || run.gpus != r.base.gpus || run.seq_length != r.base.seq_length ||
            run.system != r.base.system || run.model != r.base.model ||
            run.global_batch_size != r.base.global_batch_size) {
          problems.push_back(
              bad(std::string(knob->key),
                  wrong.empty() ? "is not a layout knob: the search cannot vary it" : wrong));
          return problems;
        }
        next.push_back(run.layout);
      }
    }
    s.meshes = std::move(next);
    s.axes.push_back({std::string(knob->key), texts.size()});
  }
  return problems;
}

}  // namespace

Result<Space> make_space(const SearchRequest& request, const Problem& p) {
  Space s;
  s.meshes = {neutral(request.base.layout)};
  multiply(s, "precision", request.precisions, [](Layout& l, Precision v) { l.precision = v; });
  for (const MeshAxis& axis : mesh_axes(request, p)) {
    if (fixed(request, {axis.key})) continue;
    multiply(s, axis.key, axis.values, [&](Layout& l, int v) { l.*axis.field = v; });
  }
  if (Diagnostics problems = vary(s, request); !problems.empty()) return problems;
  inner_axes(s, request, p);
  return s;
}

Layout candidate(const Space& s, std::size_t mesh, const InnerIndex& i) {
  Layout l = s.meshes[mesh];
  const DispatcherChoice& d = s.dispatchers[i.dispatcher];
  l.dispatcher = d.dispatcher;
  l.dispatcher_num_sms = d.num_sms;
  const OverlapChoice& o = s.overlaps[i.overlap];
  l.overlap_moe_expert_parallel_comm = o.overlap;
  l.delay_wgrad_compute = o.delay_wgrad;
  l.moe_shared_expert_overlap = o.shared;
  const GraphChoice& g = s.graphs[i.graph];
  l.cuda_graph_impl = g.impl;
  l.cuda_graph_scope = g.scope;
  const RecomputeChoice& r = s.recomputes[i.recompute];
  l.recompute_granularity = r.granularity;
  l.recompute_modules = r.modules;
  l.recompute_method = r.method;
  l.recompute_num_layers = r.num_layers;
  const OffloadChoice& f = s.offloads[i.offload];
  l.offload_modules = f.modules;
  l.optimizer_offload_fraction = f.optimizer_fraction;
  return l;
}

std::vector<std::size_t> leanest(const std::vector<RecomputeChoice>& choices) {
  const auto contained = [](const RecomputeChoice& a, const RecomputeChoice& b) {
    return a.granularity != RecomputeGranularity::full &&
           b.granularity != RecomputeGranularity::full && a.modules != b.modules &&
           a.modules.has(RecomputeModule::moe) == b.modules.has(RecomputeModule::moe) &&
           (a.modules.bits & b.modules.bits) == a.modules.bits;
  };
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const bool beaten = std::any_of(choices.begin(), choices.end(), [&](const RecomputeChoice& b) {
      return contained(choices[i], b);
    });
    if (!beaten) kept.push_back(i);
  }
  return kept;
}

bool recomputes_more(const RecomputeChoice& b, const RecomputeChoice& a) {
  if (b.granularity == RecomputeGranularity::full)
    return a.granularity != RecomputeGranularity::full;
  if (a.granularity == RecomputeGranularity::full || a.modules == b.modules) return false;
  const auto covers = [](std::uint16_t bits) {  // the whole MoE block includes its parts
    constexpr auto moe = static_cast<std::uint16_t>(1u << static_cast<int>(RecomputeModule::moe));
    constexpr auto parts =
        static_cast<std::uint16_t>((1u << static_cast<int>(RecomputeModule::moe_act)) |
                                   (1u << static_cast<int>(RecomputeModule::shared_experts)));
    return static_cast<std::uint16_t>((bits & moe) != 0 ? bits | parts : bits);
  };
  return (covers(b.modules.bits) & a.modules.bits) == a.modules.bits;
}

}  // namespace moecast
