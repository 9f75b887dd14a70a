#include "search/explain_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "estimate/legal.hpp"
#include "layout/knobs.hpp"
#include "layout/pipeline_plan.hpp"
#include "search/rank_order.hpp"

namespace moecast {
namespace {

/// The first inner choice that sets what `l` has, by setting each on a copy of it.
template <typename Choices>
std::optional<std::uint16_t> find_choice(const Space& s, const Choices& choices,
                                         std::uint16_t InnerIndex::*axis, const Layout& l,
                                         std::size_t mesh) {
  InnerIndex i;
  Layout merged = l;
  for (std::size_t c = 0; c < choices.size(); ++c) {
    i.*axis = static_cast<std::uint16_t>(c);
    const Layout with = candidate(s, mesh, i);
    const auto keep = [&](std::uint16_t InnerIndex::*which) { return which == axis; };
    if (keep(&InnerIndex::dispatcher)) {
      merged.dispatcher = with.dispatcher;
      merged.dispatcher_num_sms = with.dispatcher_num_sms;
    } else if (keep(&InnerIndex::overlap)) {
      merged.overlap_moe_expert_parallel_comm = with.overlap_moe_expert_parallel_comm;
      merged.delay_wgrad_compute = with.delay_wgrad_compute;
      merged.moe_shared_expert_overlap = with.moe_shared_expert_overlap;
    } else if (keep(&InnerIndex::graph)) {
      merged.cuda_graph_impl = with.cuda_graph_impl;
      merged.cuda_graph_scope = with.cuda_graph_scope;
    } else if (keep(&InnerIndex::recompute)) {
      merged.recompute_granularity = with.recompute_granularity;
      merged.recompute_modules = with.recompute_modules;
      merged.recompute_method = with.recompute_method;
      merged.recompute_num_layers = with.recompute_num_layers;
    } else {
      merged.offload_modules = with.offload_modules;
      merged.optimizer_offload_fraction = with.optimizer_offload_fraction;
    }
    if (merged == l) return i.*axis;
  }
  return std::nullopt;
}

struct Inner {
  const char* axis;
  std::optional<std::uint16_t> at;
};
std::vector<Inner> find_inner(const Space& s, const Layout& l) {
  return {{"dispatcher", find_choice(s, s.dispatchers, &InnerIndex::dispatcher, l, 0)},
          {"EP overlap", find_choice(s, s.overlaps, &InnerIndex::overlap, l, 0)},
          {"CUDA graphs", find_choice(s, s.graphs, &InnerIndex::graph, l, 0)},
          {"recomputation", find_choice(s, s.recomputes, &InnerIndex::recompute, l, 0)},
          {"offload", find_choice(s, s.offloads, &InnerIndex::offload, l, 0)}};
}

bool is_inner(std::string_view key) {
  for (const char* section : {"moe.", "recompute.", "cuda_graph.", "offload."}) {
    if (key.starts_with(section)) return true;
  }
  return false;
}

/// Values of the space's axes (or the one value of a knob that is none) that the run does not have.
std::vector<std::string> outside(const SearchRequest& request, const Space& s, const Run& asked) {
  std::vector<std::string> lacking;
  Run run = request.base;
  const auto differs = [&](const Knob& knob, const std::vector<std::size_t>& meshes) {
    const Value value = knob.get(asked);
    std::string searched;
    for (const std::size_t mesh : meshes) {
      run.layout = s.mesh(mesh);
      const Value has = knob.get(run);
      if (has == value) return;
      searched += (searched.empty() ? "" : ", ") + has.dump();
    }
    lacking.push_back(fmt::format("{} = {} (searched: {})", knob.key, value.dump(), searched));
  };
  std::size_t stride = s.meshes();
  std::vector<std::string_view> axes;
  for (const Space::Axis& axis : s.axes) {
    stride /= axis.size;
    const Knob* knob = find_knob(axis.key);
    if (knob == nullptr) continue;
    axes.push_back(knob->key);
    std::vector<std::size_t> meshes;
    for (std::size_t v = 0; v < axis.size; ++v) meshes.push_back(v * stride);
    differs(*knob, meshes);
  }
  for (const Inner& inner : find_inner(s, asked.layout)) {
    if (!inner.at) lacking.push_back(fmt::format("this choice of {}", inner.axis));
  }
  for (const Knob& knob : knob_table()) {
    const bool axis = std::find(axes.begin(), axes.end(), knob.key) != axes.end();
    if (!axis && !is_inner(knob.key) && knob.section() != "software") differs(knob, {0});
  }
  return lacking;
}

/// Seconds that `asked` takes more than `first` on its critical rank, largest part first.
std::vector<std::pair<std::string, double>> differences(const Estimate& asked,
                                                        const Estimate& first) {
  const TimeBreakdown &a = asked.time, &b = first.time;
  std::vector<std::pair<std::string, double>> parts{
      {"compute", (a.compute - b.compute).value},
      {"ep_comm", (a.ep_comm_exposed - b.ep_comm_exposed).value},
      {"tp_comm", (a.tp_comm_exposed - b.tp_comm_exposed).value},
      {"cp_comm", (a.cp_comm_exposed - b.cp_comm_exposed).value},
      {"pp_comm", (a.pp_comm_exposed - b.pp_comm_exposed).value},
      {"dp_comm", (a.dp_comm_exposed - b.dp_comm_exposed).value},
      {"bubble", (a.pipeline_bubble - b.pipeline_bubble).value},
      {"host", (a.host_exposed - b.host_exposed).value},
      {"optimizer", (a.optimizer - b.optimizer).value}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  return parts;
}

std::string in_words(double slower_pct, const std::vector<std::pair<std::string, double>>& parts) {
  if (parts.empty()) return "nothing that is searched fits";
  std::string text = fmt::format("{:.1f} % {} than the first", std::abs(slower_pct),
                                 slower_pct < 0 ? "faster" : "slower");
  std::string where;
  for (const auto& [name, seconds] : parts) {
    if (slower_pct > 0 && seconds > 0.1 * parts.front().second && seconds > 0)
      where += fmt::format("{}{} +{:.3g} s", where.empty() ? "" : ", ", name, seconds);
  }
  return where.empty() ? text : text + ": " + where;
}

/// A layout that does less for memory in the same place, and fits.
std::string enough(const SearchRequest& request, const Problem& p, const Space& s,
                   const Survivor& c) {
  Evaluator e(p);
  Legality legality(p);
  const auto fits = [&](const InnerIndex& i) {
    const Layout l = candidate(s, c.mesh, i);
    if (legality.first_broken(l) >= 0) return false;
    const Outcome o = e.evaluate(l, Depth::bound);
    return o.status == Outcome::Status::fits &&
           o.reserved + request.min_headroom_gib * kBytesPerGib <=
               p.system().gpu.hbm_capacity.value;
  };
  InnerIndex i = c.inner;
  for (i.recompute = 0; i.recompute < s.recomputes.size(); ++i.recompute) {
    if (recomputes_more(s.recomputes[c.inner.recompute], s.recomputes[i.recompute]) && fits(i))
      return "less recomputation is enough";
  }
  for (i.offload = 0; i.offload < c.inner.offload; ++i.offload) {
    for (i.recompute = 0; i.recompute < s.recomputes.size(); ++i.recompute) {
      if (fits(i)) return "something fits in this place without this offload";
    }
  }
  return "";
}

std::vector<Stage> stages_of(const Problem& p, const Layout& l, const std::string& text) {
  auto plan = plan_pipeline(p.model, l, text, p.seq_length);
  return plan ? plan.take().stages : std::vector<Stage>{};
}

/// The string of the split that the search takes by itself is no other layout.
void drop_automatic_string(const SearchRequest& request, const Problem& p, Run& run) {
  if (run.layout.pipeline_split != PipelineSplit::explicit_string) return;
  Layout automatic = run.layout;
  automatic.pipeline_split = PipelineSplit::automatic;
  const auto mine = stages_of(p, run.layout, run.pipeline_model_parallel_layout);
  if (mine.empty() || mine != stages_of(p, automatic, "")) return;
  run.layout = automatic;
  run.pipeline_model_parallel_layout = request.base.pipeline_model_parallel_layout;
}

/// Place in the list, from 1; 0: not there. Splits are equal when the layers lie alike.
int rank_in(const std::vector<RankedLayout>& listed, const Problem& p, const Run& asked) {
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const Run& run = listed[i].run;
    Layout same = run.layout;
    same.pipeline_split = asked.layout.pipeline_split;
    if (same == asked.layout &&
        stages_of(p, run.layout, run.pipeline_model_parallel_layout) ==
            stages_of(p, asked.layout, asked.pipeline_model_parallel_layout))
      return static_cast<int>(i) + 1;
  }
  return 0;
}

/// The estimate of the first of the list, as the search judges it.
Outcome first_of_list(const Problem& p, const Run& first, Estimate& detail) {
  Problem own = p;
  own.run.pipeline_model_parallel_layout = first.pipeline_model_parallel_layout;
  return Evaluator(own).evaluate(first.layout, Depth::exact, &detail);
}

/// What beats a layout that is not listed: another split of its layers, or nothing but time.
std::string slower_than(const std::vector<RankedLayout>& listed, const RankKey& key) {
  const auto row = std::find_if(listed.begin(), listed.end(), [&](const RankedLayout& r) {
    return r.key.place == key.place && r.value < r.key.value;
  });
  if (row == listed.end()) return fmt::format("behind the first {}", listed.size());
  return fmt::format("rank {} splits its layers better: {}", row - listed.begin() + 1,
                     row->run.pipeline_model_parallel_layout);
}

}  // namespace

std::optional<Survivor> find_in_space(const Space& s, const Layout& l) {
  Survivor c;
  const auto inner = find_inner(s, l);
  for (const Inner& i : inner) {
    if (!i.at) return std::nullopt;
  }
  c.inner = {*inner[0].at, *inner[1].at, *inner[2].at, *inner[3].at, *inner[4].at};
  for (c.mesh = 0; c.mesh < s.meshes(); ++c.mesh) {
    if (candidate(s, c.mesh, c.inner) == l) return c;
  }
  return std::nullopt;
}

namespace {

/// SMs that the search gives to the dispatcher of a layout which states none.
int searched_sms(const Space& s, const Layout& l) {
  if (l.dispatcher_num_sms > 0) return l.dispatcher_num_sms;
  const auto choice =
      std::find_if(s.dispatchers.begin(), s.dispatchers.end(),
                   [&](const DispatcherChoice& d) { return d.dispatcher == l.dispatcher; });
  return choice == s.dispatchers.end() ? 0 : choice->num_sms;
}

Explanation explain_run(const SearchRequest& request, const Problem& p, const Space& s,
                        const std::vector<RankedLayout>& listed, const Run& run) {
  Explanation x;
  x.run = run;
  Problem own = p;
  own.run.pipeline_model_parallel_layout = x.run.pipeline_model_parallel_layout;
  const Layout l = x.run.layout;
  for (const Finding& f : check_layout(own, l)) {
    if (f.severity != Severity::error) continue;
    x.rules.push_back(f.rule);
    x.message += (x.message.empty() ? "" : "; ") + fmt::format("[{}] {}", f.rule, f.message);
  }
  x.verdict = "rule";
  if (!x.rules.empty()) return x;

  Evaluator evaluator(own);
  Estimate asked;
  const Outcome o = evaluator.evaluate(l, Depth::exact, &asked);
  x.verdict = "no plan";
  if (o.status == Outcome::Status::no_plan) {
    for (const Diagnostic& d : evaluator.plan_problems()) x.message += d.message + "; ";
    return x;
  }
  x.step_time = seconds(o.step);
  x.over = bytes(o.reserved + request.min_headroom_gib * kBytesPerGib -
                 p.system().gpu.hbm_capacity.value);
  if (!listed.empty()) {
    Estimate best;
    const Outcome first = first_of_list(p, listed.front().run, best);
    x.slower_pct = 100 * (o.step / first.step - 1);
    x.where = differences(asked, best);
  }
  if (x.over.value > 0) {
    x.verdict = "memory";
    x.message =
        fmt::format("rank {} reserves {:.2f} GiB more than it may", o.largest_rank, in_gib(x.over));
    return x;
  }
  if (x.rank = rank_in(listed, p, x.run); x.rank > 0) {
    x.verdict = "ranked";
    x.message = fmt::format("rank {}; {}", x.rank, in_words(x.slower_pct, x.where));
    return x;
  }
  drop_automatic_string(request, p, x.run);
  auto place = find_in_space(s, x.run.layout);
  if (!place ||
      x.run.pipeline_model_parallel_layout != request.base.pipeline_model_parallel_layout) {
    x.verdict = "not in the space";
    for (const std::string& lacking : outside(request, s, x.run))
      x.message += (x.message.empty() ? "" : "; ") + lacking;
    x.message += "; " + in_words(x.slower_pct, x.where);
    return x;
  }
  const std::string less = enough(request, p, s, *place);
  if (!less.empty()) {
    x.verdict = "more than needed";
    x.message = less + "; " + in_words(x.slower_pct, x.where);
    return x;
  }
  x.verdict = "slower";
  place->reserved = o.reserved;
  x.message = slower_than(listed, key_of(request, s, *place, o.step)) + "; " +
              in_words(x.slower_pct, x.where);
  return x;
}

}  // namespace

Explanation explain_layout(const SearchRequest& request, const Problem& p, const Space& s,
                           const std::vector<RankedLayout>& listed) {
  Run run = *request.explain;
  const int stated = run.layout.dispatcher_num_sms;
  run.layout.dispatcher_num_sms = searched_sms(s, run.layout);
  Explanation x = explain_run(request, p, s, listed, run);
  if (run.layout.dispatcher_num_sms != stated) {
    x.message = fmt::format("with moe.dispatcher_num_sms={}, as searched; {}",
                            run.layout.dispatcher_num_sms, x.message);
  }
  return x;
}

}  // namespace moecast
