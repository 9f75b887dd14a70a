#include "moecast/whatif.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "estimate/inputs.hpp"
#include "estimate/problem.hpp"
#include "layout/rules.hpp"
#include "layout/run_file.hpp"
#include "moecast/evaluator.hpp"
#include "search/request.hpp"

namespace moecast {
namespace {

constexpr std::size_t kMaxPoints = 10000;
constexpr double kSecondsPerDay = 86400, kSecondsPerHour = 3600;

/// What one point asks: a search, and the given run with the point's values.
struct Question {
  std::vector<std::string> values;
  SearchRequest search;
  std::optional<Run> start;
};

std::string run_key(const std::string& key) {
  return key.starts_with("system.") ? "cluster.system_overrides" + key.substr(key.find('.')) : key;
}

Diagnostics set_values(const WhatIfRequest& r, Question& q) {
  Diagnostics problems;
  for (std::size_t i = 0; i < r.axes.size(); ++i) {
    const std::string key = run_key(r.axes[i].key);
    const Diagnostics wrong = set_knob(q.search, key, q.values[i], "--vary");
    problems.insert(problems.end(), wrong.begin(), wrong.end());
    if (q.start && wrong.empty()) apply_set(*q.start, key + "=" + q.values[i]);
  }
  return problems;
}

/// The product of the axes, the last one fastest.
std::vector<Question> questions_of(const WhatIfRequest& r) {
  std::vector<Question> questions{{{}, r.base, r.start}};
  for (const WhatIfAxis& axis : r.axes) {
    std::vector<Question> next;
    for (const Question& q : questions) {
      for (const std::string& value : axis.values) {
        next.push_back(q);
        next.back().values.push_back(value);
      }
    }
    questions = std::move(next);
  }
  return questions;
}

/// The shape of a job is a point's own affair, anything else is a mistake of the input.
bool is_of_the_point(const Diagnostic& d) {
  return d.key == "cluster.gpus" || d.key == "cluster.gpus_used_per_domain";
}

/// What is wrong with any point, each problem once.
Diagnostics check(const WhatIfRequest& r, std::vector<Question>& questions) {
  Diagnostics problems;
  std::set<std::string> seen;
  const auto add = [&](const Diagnostics& found) {
    for (const Diagnostic& d : found) {
      if (!is_of_the_point(d) || d.file == "--vary")
        if (seen.insert(to_string(d)).second) problems.push_back(d);
    }
  };
  for (Question& q : questions) {
    const Diagnostics wrong = set_values(r, q);
    add(wrong);
    if (wrong.empty()) add(make_problem(q.search.base).problems());
  }
  return problems;
}

std::string sentence(const Diagnostics& problems) {
  std::string text;
  for (const Diagnostic& d : problems)
    text += (text.empty() ? "" : "; ") + (d.key.empty() ? "" : d.key + ": ") + d.message;
  return text;
}

/// Why a search has no answer: the nearest miss, or the rule that refused most.
std::string nothing_runs(const SearchResult& found) {
  if (found.nearest.run.gpus > 0) {
    const std::string over = fmt::format("nothing fits: the nearest layout is {:.1f} GiB over",
                                         in_gib(found.nearest.over));
    return found.nearest.change.empty() ? over : over + "; it fits with " + found.nearest.change;
  }
  const auto most =
      std::max_element(found.rejected.begin(), found.rejected.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == found.rejected.end()) return "the space has no candidates";
  if (found.rejected.contains("memory")) return "nothing fits: the model state alone is too much";
  const auto& rules = rule_table();
  const auto rule =
      std::find_if(rules.begin(), rules.end(), [&](const Rule& x) { return x.id == most->first; });
  return fmt::format(
      "no layout is legal: {} refuses {:.0f} % of them{}", most->first,
      100.0 * static_cast<double>(most->second) / static_cast<double>(found.candidates),
      rule == rules.end() ? "" : fmt::format(" ({})", rule->condition));
}

/// Bytes that a forecast is over what it may reserve; at most 0 when it fits.
double gib_over(const Estimate& e, double headroom_gib) {
  const RankMemory& fullest = e.ranks[static_cast<std::size_t>(e.largest_rank)];
  return in_gib(fullest.peak_reserved - e.usable) + headroom_gib;
}

/// Step times decide between the layout of the start and a searched one only where the search ranks
/// by them and the start meets what it asks of a layout.
bool competes(const SearchRequest& search) {
  using enum SearchRequest::Objective;
  return search.max_ep_domains == 0 &&
         (search.objective == step_time || search.objective == tokens_per_dollar);
}

/// Takes the layout of the start where it is legal, fits, and is faster than what the point has.
void try_start(const Run& start, double headroom_gib, WhatIfPoint& point) {
  const Result<Estimate> e = estimate(start);
  const double over = e ? gib_over(e.value(), headroom_gib) : 0;
  if (e && over <= 0) {
    const bool searched = point.run.gpus > 0 && point.runs();
    if (searched && point.estimate.step_time <= e.value().step_time) return;
    point.estimate = e.value();
    point.run = e.value().run;
    point.started = true;
    point.reason.clear();
  } else if (point.reason.empty() && point.run.gpus == 0) {
    point.reason = e ? fmt::format("does not fit: {:.1f} GiB over", over) : sentence(e.problems());
  }
}

/// The best layout of a point and its forecast; nothing when the search was stopped.
std::optional<WhatIfPoint> answer(const WhatIfRequest& r, const Question& q) {
  WhatIfPoint point;
  point.values = q.values;
  if (!r.keep_layout) {
    const Result<SearchResult> found = search(q.search);
    if (found && !found.value().complete) return std::nullopt;
    if (!found) {
      point.reason = sentence(found.problems());
    } else if (found.value().ranked.empty()) {
      point.reason = nothing_runs(found.value());
    } else {
      const Result<Estimate> best = estimate(found.value().ranked.front().run);
      if (best) point.estimate = best.value();
      point.reason = sentence(best.problems());
    }
    point.run = point.runs() ? point.estimate.run : q.search.base;
  }
  if (q.start && (r.keep_layout || competes(q.search)))
    try_start(*q.start, q.search.min_headroom_gib, point);
  if (point.run.gpus == 0) point.run = q.search.base;
  return point;
}

std::optional<double> price_of(const WhatIfRequest& r, const std::string& system) {
  for (const std::string& name : {system, std::string()})
    if (const auto found = r.prices.find(name); found != r.prices.end()) return found->second;
  return std::nullopt;
}

void fill_budget(const WhatIfRequest& r, WhatIfPoint& point) {
  if (!point.runs()) return;
  const Estimate& e = point.estimate;
  const double tokens = static_cast<double>(point.run.global_batch_size) * point.run.seq_length;
  point.tokens_per_s = tokens / e.step_time.value;
  point.steps = std::ceil(r.tokens / tokens);
  point.days = point.steps * e.step_time.value / kSecondsPerDay;
  point.days_p05 = point.steps * e.step_time_p05.value / kSecondsPerDay;
  point.days_p95 = point.steps * e.step_time_p95.value / kSecondsPerDay;
  point.gpu_hours = point.steps * e.step_time.value / kSecondsPerHour * point.run.gpus;
  if (const auto price = price_of(r, point.run.system)) point.cost = point.gpu_hours * *price;
}

void compare(const WhatIfRequest& r, WhatIfResult& all) {
  for (std::size_t i = 0; i < all.points.size(); ++i) {
    WhatIfPoint& point = all.points[i];
    if (!point.runs()) continue;
    if (!all.reference) all.reference = i;
    const WhatIfPoint& first = all.points[*all.reference];
    point.speedup = point.tokens_per_s / first.tokens_per_s;
    point.efficiency = point.speedup * first.run.gpus / point.run.gpus;
    const auto key = [&](std::size_t at) {
      return std::pair(all.points[at].run.gpus, all.points[at].days);
    };
    if (r.days && point.days <= *r.days && (!all.answer || key(i) < key(*all.answer)))
      all.answer = i;
  }
}

}  // namespace

Result<WhatIfResult> whatif(const WhatIfRequest& r) {
  std::size_t count = 1;
  for (const WhatIfAxis& axis : r.axes)
    count = std::min(count * axis.values.size(), kMaxPoints + 1);
  if (count > kMaxPoints) {
    return Diagnostic{
        "--vary",           0, 0, "", fmt::format("makes more than {} points", kMaxPoints),
        "shorten the lists"};
  }
  const SharedInputs shared;
  std::vector<Question> questions = questions_of(r);
  if (Diagnostics problems = check(r, questions); !problems.empty()) return problems;

  WhatIfResult all;
  all.asked = questions.size();
  for (Question& q : questions) {
    const auto done = static_cast<double>(all.points.size());
    if (r.base.progress) {
      q.search.progress = [&, done](double fraction) {
        r.base.progress((done + fraction) / static_cast<double>(all.asked));
      };
    }
    std::optional<WhatIfPoint> point = r.base.stopped() ? std::nullopt : answer(r, q);
    if (!point) break;
    fill_budget(r, *point);
    all.points.push_back(std::move(*point));
  }
  if (r.base.progress) r.base.progress(1);
  compare(r, all);
  return all;
}

}  // namespace moecast
