#include "search/explain.hpp"

#include <fmt/format.h>

#include "estimate/legal.hpp"
#include "layout/rank_groups.hpp"

namespace moecast {
namespace {

double percent(Seconds part, const Estimate& e) { return 100 * (part / e.step_time); }

std::string expert_placement(const Problem& p, const Layout& l) {
  if (p.model.moe.num_moe_experts == 0) return fmt::format("DP{}", l.dp(p.world));
  const GroupSpan& span = p.cluster.span(1, l.etp * l.ep);
  const std::string experts =
      fmt::format("{:.3g} experts a rank", static_cast<double>(p.model.moe.num_moe_experts) / l.ep);
  if (l.ep * l.etp == 1)
    return fmt::format("no expert parallelism: no dispatch traffic, {}", experts);
  if (span.domains == 1)
    return fmt::format("EP{} stays inside one NVLink domain, {}", l.ep, experts);
  return fmt::format("EP{} spans {} NVLink domains, {}", l.ep, span.domains, experts);
}

std::string exposure(const Estimate& e) {
  const double ep = percent(e.time.ep_comm_exposed, e), bubble = percent(e.time.pipeline_bubble, e);
  const double host = percent(e.time.host_exposed, e), recompute = percent(e.time.recompute, e);
  std::string text = fmt::format("compute {:.0f} %", percent(e.time.compute, e));
  if (ep >= 1) text += fmt::format(", exposed EP {:.0f} %", ep);
  if (bubble >= 1) text += fmt::format(", bubble {:.0f} %", bubble);
  if (host >= 1) text += fmt::format(", host {:.0f} %", host);
  if (recompute >= 1) text += fmt::format(", recompute {:.0f} %", recompute);
  return text;
}

}  // namespace

std::string why(const Problem& p, const Layout& l, const Estimate& detail, const Outcome& outcome) {
  const double capacity = p.system().gpu.hbm_capacity.value;
  return fmt::format("{}; {}; reserves {:.0f} of {:.0f} GiB", expert_placement(p, l),
                     exposure(detail), outcome.reserved / kBytesPerGib, capacity / kBytesPerGib);
}

std::string nearest_change(const Problem& p, const Layout& l, double headroom_gib) {
  const auto fits = [&](const Problem& problem, const Layout& layout) {
    Evaluator e(problem);
    const Outcome o = e.evaluate(layout, Depth::bound);
    return o.status == Outcome::Status::fits &&
           o.reserved + headroom_gib * kBytesPerGib <= p.system().gpu.hbm_capacity.value;
  };
  Layout offloaded = l;
  offloaded.optimizer_offload_fraction = 1;
  if (fits(p, offloaded)) return "offload.optimizer_fraction=1.0";
  Layout lean = l;
  lean.grad_dtype = DType::bf16;
  lean.precision_aware_optimizer = true;
  lean.moment_dtype = DType::bf16;
  if (fits(p, lean))
    return "optimizer.grad_dtype=bf16 optimizer.precision_aware=true optimizer.moment_dtype=bf16";
  for (int factor = 2; factor <= 512; factor *= 2) {
    auto cluster = Cluster::build(p.system(), p.world * factor);
    if (!cluster) break;
    Problem more = p;
    more.world *= factor;
    more.cluster = cluster.take();
    Legality legality(more);
    for (int ep = l.ep * factor; ep >= l.ep; ep /= 2) {  // the rest of the factor goes to stages
      Layout wider = l;
      wider.ep = ep;
      wider.pp = l.pp * (l.ep * factor / ep);
      if (legality.first_broken(wider) >= 0 || !fits(more, wider)) continue;
      return fmt::format(
          "cluster.gpus={} layout.expert_model_parallel_size={} "
          "layout.pipeline_model_parallel_size={}",
          more.world, wider.ep, wider.pp);
    }
  }
  return "";
}

}  // namespace moecast
