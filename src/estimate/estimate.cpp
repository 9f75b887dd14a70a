// The public estimate: legality, evaluation, wall, advice, interval.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "estimate/advice.hpp"
#include "estimate/interval.hpp"
#include "estimate/legal.hpp"
#include "estimate/walls.hpp"
#include "moecast/evaluator.hpp"

namespace moecast {
namespace {

Diagnostics illegal(const std::vector<Finding>& findings) {
  Diagnostics problems;
  for (const Finding& f : findings) {
    if (f.severity != Severity::error) continue;
    problems.push_back(
        {"", 0, 0, f.keys.empty() ? "" : f.keys.front(), "[" + f.rule + "] " + f.message, f.fix});
  }
  return problems;
}

/// Why the largest rank is the largest, in a sentence.
std::string largest_reason(const std::vector<RankMemory>& ranks, int largest) {
  const RankMemory& r = ranks[static_cast<std::size_t>(largest)];
  const auto share = [&](Bytes b) { return 100 * (b / r.peak); };
  const Bytes state = r.weights + r.gradients + r.optimizer;
  return fmt::format("{:.0f} % model state, {:.0f} % activations; peak at: {}", share(state),
                     share(r.activations), r.moment);
}

double max_imbalance(const Problem& p, const Layout& l) {
  if (p.model.moe.num_moe_experts == 0) return 0;
  Problem skewed = p;
  const auto fits = [&](double factor) {
    skewed.imbalance = factor;
    Evaluator e(skewed);
    return e.evaluate(l, Depth::bound).status == Outcome::Status::fits;
  };
  const double worst =
      std::max(1.0, static_cast<double>(l.ep) * std::min<double>(1, p.model.moe.num_moe_experts));
  if (!fits(1)) return 0;
  if (fits(worst)) return worst;
  double low = 1, high = worst;
  for (int i = 0; i < 24; ++i) {
    const double mid = 0.5 * (low + high);
    (fits(mid) ? low : high) = mid;
  }
  return low;
}

void fill_rates(const Problem& p, const Layout& l, Estimate& e) {
  const double tokens = static_cast<double>(p.global_batch_size) * p.seq_length;
  e.model_flops_per_token = model_flops_per_token(p.model, p.seq_length, l.tp);
  e.tokens_per_s_per_gpu = tokens / e.step_time.value / p.world;
  e.tflops_per_gpu = e.tokens_per_s_per_gpu * e.model_flops_per_token / 1e12;
  e.mfu_pct = 100 * e.tflops_per_gpu / in_tflops(peak_flops(p.system().gpu, l.precision));
  const ParamCount count = count_params(p.model);
  e.params_total = count.total;
  e.params_active = count.active;
}

void fill_warnings(const Problem& p, const std::vector<Finding>& findings, const Outcome& outcome,
                   Estimate& e) {
  e.warnings = p.warnings;
  if (const auto missing = out_of_domain(p, e.run.layout); !missing.empty()) {
    e.warnings.push_back(
        {"out-of-domain",
         fmt::format("no measured step behind this forecast had: {}", fmt::join(missing, "; "))});
  }
  for (const Finding& f : findings) {
    // moecast's own advice belongs to check
    const bool advice = f.severity == Severity::info && f.applies == to_string(Enforcer::moecast);
    if (f.severity != Severity::error && !advice) e.warnings.push_back({f.rule, f.message});
  }
  const double used = outcome.reserved / p.system().gpu.hbm_capacity.value;
  if (e.fits && used > 0.9) {
    e.warnings.push_back(
        {"memory-pressure",
         fmt::format(
             "{:.0f} % of device memory would be reserved: allocator retries near the limit cost "
             "1.3 to 3.5 x in published runs, which this forecast does not include",
             100 * used)});
  }
  if (p.system().host_memory.value > 0 &&
      outcome.host * p.system().gpus_per_node > p.system().host_memory.value) {
    e.warnings.push_back(
        {"host-memory",
         fmt::format("offload pins {:.0f} GiB per GPU, more than the node's host memory holds",
                     outcome.host / kBytesPerGib)});
  }
}

}  // namespace

Result<Estimate> estimate(const Run& run, const EstimateOptions& options) {
  auto made = make_problem(run);
  if (!made) return made.problems();
  const Problem p = made.take();
  const Layout& l = run.layout;
  const auto findings = check_layout(p, l);
  if (Diagnostics problems = illegal(findings); options.enforce_rules && !problems.empty())
    return problems;

  Estimate e;
  e.run = run;
  Evaluator evaluator(p);
  const Outcome outcome = evaluator.evaluate(l, Depth::exact, &e, options.trace);
  if (outcome.status == Outcome::Status::no_plan) return evaluator.plan_problems();
  e.fits = outcome.status == Outcome::Status::fits;
  e.capacity = p.system().gpu.hbm_capacity;
  e.usable = e.capacity;  // peak_reserved counts what lives outside the allocator
  e.largest_rank = outcome.largest_rank;
  e.largest_rank_reason = largest_reason(e.ranks, e.largest_rank);
  if (!options.memory_detail) {
    for (RankMemory& r : e.ranks) r.detail = {};
  }
  fill_rates(p, l, e);
  fill_warnings(p, findings, outcome, e);
  if (options.advice) {
    const WallVerdict verdict = find_wall(p, l, outcome);
    e.wall = verdict.wall;
    e.ablation = verdict.saved;
    e.advice = advise(p, l, outcome);
    e.max_imbalance_that_fits = max_imbalance(p, l);
    const double width = half_width(p, sensitivity(p, l, outcome.step));
    e.step_time_p05 = e.step_time * std::exp(-width);
    e.step_time_p95 = e.step_time * std::exp(width);
  }
  return e;
}

}  // namespace moecast
