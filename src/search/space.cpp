#include "search/space.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "layout/knobs.hpp"
#include "layout/pipeline_plan.hpp"
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

/// Tensor parallelism inside a node; context parallelism down to 1024 tokens a rank; pipeline
/// stages and expert groups that divide the GPUs; chunks up to one layer each, and the model's ends
/// alone.
std::vector<Space::Axis> mesh_axes(const SearchRequest& request, const Problem& p) {
  const int gpus = p.world;
  const int stages = static_cast<int>(p.model.layers.size()) + kStagesWithoutLayers;
  const int experts = p.model.moe.num_moe_experts;
  std::vector<int> chunks;
  for (const int v : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24}) {
    if (v == 1 || 2 * v <= stages) chunks.push_back(v);
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
  for (const int v : divisors(gpus, std::min(stages, 64))) pp.push_back(v);
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

DispatcherChoice dispatcher_of(const Layout& l) { return {l.dispatcher, l.dispatcher_num_sms}; }
OverlapChoice overlap_of(const Layout& l) {
  return {l.overlap_moe_expert_parallel_comm, l.delay_wgrad_compute, l.moe_shared_expert_overlap};
}
GraphChoice graph_of(const Layout& l) { return {l.cuda_graph_impl, l.cuda_graph_scope}; }
RecomputeChoice recompute_of(const Layout& l) {
  return {l.recompute_granularity, l.recompute_modules, l.recompute_method, l.recompute_num_layers};
}
OffloadChoice offload_of(const Layout& l) {
  return {l.offload_modules, l.optimizer_offload_fraction};
}

/// Knobs of the inner axes. The first list of each is set by the axis' choices, so --vary on one
/// of them is a choice too; a knob of the second only keeps the axis as it is.
struct InnerKeys {
  std::vector<std::string_view> set, beside;
};
const InnerKeys kDispatcherKeys{{"moe.dispatcher", "moe.dispatcher_num_sms"}, {}};
const InnerKeys kOverlapKeys{{"moe.overlap_moe_expert_parallel_comm", "moe.delay_wgrad_compute",
                              "moe.moe_shared_expert_overlap"},
                             {}};
const InnerKeys kGraphKeys{{"cuda_graph.impl", "cuda_graph.scope"}, {}};
const InnerKeys kRecomputeKeys{
    {"recompute.granularity", "recompute.modules", "recompute.method", "recompute.num_layers"}, {}};
const InnerKeys kOffloadKeys{{"offload.activation_modules", "offload.optimizer_fraction"},
                             {"offload.cpu_offloading_num_layers"}};

bool is_one_of(const std::string& name, const std::vector<std::string_view>& keys) {
  const Knob* knob = find_knob(name);
  return knob != nullptr && std::find(keys.begin(), keys.end(), knob->key) != keys.end();
}
bool set_by_inner_axis(const std::string& name) {
  for (const InnerKeys* axis :
       {&kDispatcherKeys, &kOverlapKeys, &kGraphKeys, &kRecomputeKeys, &kOffloadKeys}) {
    if (is_one_of(name, axis->set)) return true;
  }
  return false;
}

/// What --vary and --fix leave of an inner axis: every combination of the varied knobs over the
/// base, the base alone, or what the search would take by itself.
template <typename Choice>
std::vector<Choice> inner_axis(const SearchRequest& r, const InnerKeys& keys,
                               Choice (*choice_of)(const Layout&), std::vector<Choice> searched) {
  std::vector<Layout> layouts{r.base.layout};
  bool given = false;
  for (const auto& [name, text] : r.fix)
    given = given || is_one_of(name, keys.set) || is_one_of(name, keys.beside);
  for (const auto& [name, texts] : r.vary) {
    given = given || is_one_of(name, keys.set) || is_one_of(name, keys.beside);
    if (!is_one_of(name, keys.set)) continue;
    std::vector<Layout> next;
    for (const Layout& l : layouts) {
      for (const std::string& text : texts) {
        Run run = r.base;
        run.layout = l;
        Value v = Value::parse(text, nullptr, false);
        if (v.is_discarded()) v = text;
        if (find_knob(name)->set(run, v).empty()) next.push_back(run.layout);
      }
    }
    layouts = std::move(next);
  }
  if (!given && !searched.empty()) return searched;
  std::vector<Choice> choices;
  for (const Layout& l : layouts) choices.push_back(choice_of(l));
  return choices;
}

constexpr int kHybridEpSms = 32;  ///< what Megatron-Bridge's performance recipes set

void inner_axes(Space& s, const SearchRequest& r, const Problem& p) {
  const bool moe = p.model.moe.num_moe_experts > 0;
  std::vector<DispatcherChoice> dispatchers;
  std::vector<OverlapChoice> overlaps;
  if (moe) {
    const int sms = r.base.layout.dispatcher_num_sms;
    dispatchers = {{Dispatcher::alltoall, 0},
                   {Dispatcher::deepep, 0},
                   {Dispatcher::hybridep, sms > 0 ? sms : kHybridEpSms}};
    overlaps = {{false, false, false}, {true, false, false}, {true, true, false}};
    if (p.model.moe.moe_shared_expert_intermediate_size > 0)
      overlaps.push_back({false, false, true});
  }
  s.dispatchers = inner_axis(r, kDispatcherKeys, dispatcher_of, std::move(dispatchers));
  s.overlaps = inner_axis(r, kOverlapKeys, overlap_of, std::move(overlaps));
  s.graphs = inner_axis(r, kGraphKeys, graph_of, graph_choices(p.model));
  s.recomputes = inner_axis(r, kRecomputeKeys, recompute_of, recompute_choices(p.model));
  std::stable_sort(s.recomputes.begin(), s.recomputes.end(),
                   [](const RecomputeChoice& a, const RecomputeChoice& b) {
                     const auto size = [](const RecomputeChoice& c) {
                       return std::pair(c.granularity == RecomputeGranularity::full,
                                        std::popcount(c.modules.bits));
                     };
                     return size(a) < size(b);
                   });
  s.offloads = inner_axis(r, kOffloadKeys, offload_of, offload_choices(r.base.layout, p.model));
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
    for (const Layout& m : s.bases) {
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
    if (set_by_inner_axis(name)) continue;  // its values were read only to find what is wrong
    s.bases = std::move(next);
    s.axes.emplace_back(std::string(knob->key), texts.size());
  }
  return problems;
}

}  // namespace

Result<Space> make_space(const SearchRequest& request, const Problem& p) {
  Space s;
  s.axes.emplace_back("precision", request.precisions.size());
  for (const Precision precision : request.precisions)
    s.bases.emplace_back(neutral(request.base.layout)).precision = precision;
  for (Space::Axis& axis : mesh_axes(request, p))
    if (!fixed(request, {axis.key})) s.axes.push_back(std::move(axis));
  if (Diagnostics problems = vary(s, request); !problems.empty()) return problems;
  inner_axes(s, request, p);
  return s;
}

Space::Axis::Axis(std::string name, std::size_t count)
    : key(std::move(name)),
      size(count),
      pipeline(key == "layout.pipeline_model_parallel_size" ||
               key == "layout.virtual_pipeline_model_parallel_size") {}

Space::Axis::Axis(std::string name, int Layout::*sets, std::vector<int> to)
    : Axis(std::move(name), to.size()) {
  field = sets;
  values = std::move(to);
}

std::size_t Space::meshes() const {
  std::size_t product = 1;
  for (const Axis& axis : axes) product *= axis.size;
  return product;
}

Layout Space::mesh(std::size_t number) const {
  std::size_t base = 0, scale = 1, rest = number;
  for (std::size_t i = axes.size(); i-- > 0;) {
    if (axes[i].field == nullptr) {
      base += rest % axes[i].size * scale;
      scale *= axes[i].size;
    }
    rest /= axes[i].size;
  }
  Layout l = bases[base];
  for (std::size_t i = axes.size(); i-- > 0;) {
    if (axes[i].field != nullptr) l.*axes[i].field = axes[i].values[number % axes[i].size];
    number /= axes[i].size;
  }
  return l;
}

std::uint64_t shard_group(const Space& s, std::uint32_t mesh) {
  std::uint64_t group = 0, rest = mesh, scale = 1;
  for (auto axis = s.axes.rbegin(); axis != s.axes.rend(); ++axis) {
    if (!axis->pipeline) {
      group += rest % axis->size * scale;
      scale *= axis->size;
    }
    rest /= axis->size;
  }
  return group;
}

Layout candidate(const Space& s, Layout l, const InnerIndex& i) {
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
