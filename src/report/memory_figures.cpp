#include "report/memory_figures.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "estimate/rank_state.hpp"
#include "report/rows.hpp"
#include "report/validation_summary.hpp"

namespace moecast {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> in_words(const std::string& notes, const char* pattern) {
  std::smatch hit;
  const std::regex expression(pattern);
  if (!std::regex_search(notes, hit, expression)) return std::nullopt;
  return rows::number(hit[1].str());
}

std::optional<double> figure(const MeasuredRow& row, const char* column, const char* pattern) {
  if (const auto stated = rows::number(rows::cell(row, column))) return stated;
  return in_words(rows::cell(row, "notes").substr(0, 4096), pattern);
}

bool says(const MeasuredRow& row, const std::string& words) {
  return row.mem_basis.find(words) != std::string::npos ||
         rows::cell(row, "notes").find(words) != std::string::npos;
}

/// Until PR 3169 of Megatron-Bridge (r0.4.0, April 2026) a log had one memory line per pipeline
/// stage, printed after the first iteration, and the performance scripts quote the first of them:
/// which stage printed it is not known. Ref: training/utils/train_utils.py,
/// scripts/performance/utils/evaluate.py.
bool early_bridge_log(const MeasuredRow& row) {
  const std::string release = rows::cell(row, "release");
  static const std::regex kRelease("^(2[0-9]\\.[0-9]{2})(-2[0-9]\\.[0-9]{2})?$");
  std::smatch from;
  return rows::cell(row, "source").find("Megatron-Bridge") != std::string::npos &&
         std::regex_match(release, from, kRelease) && from[1].str() < "26.04";
}

/// The value of the pipeline rank that a row's figures are of: the first, or the largest.
template <typename Value>
double held_against(const MeasuredRow& row, const Estimate& e, Value value) {
  if (e.ranks.empty()) return 0;
  double chosen = value(e.ranks.front());
  if (row.mem_basis.find("rank-0") != std::string::npos) return chosen;
  for (const RankMemory& rank : e.ranks) chosen = std::max(chosen, value(rank));
  return chosen;
}

/// The H200 runs shared processes, and each was measured without what its process held before: the
/// cuBLAS workspaces are in the first run's figures alone. Figures at rest tell which one that is.
double held_before_gib(const MeasuredRow& row, const Estimate& e) {
  if (!row.at_rest_gib || rows::cell(row, "release") != "megatron-local-2026-08") return 0;
  const double rest = held_against(row, e, [](const RankMemory& r) { return in_gib(r.at_rest); });
  const double workspaces = in_gib(bytes(kCublasWorkspaces)), over = rest - *row.at_rest_gib;
  return std::abs(over - workspaces) < std::abs(over) ? workspaces : 0;
}

double nearest(const std::vector<double>& values, double to) {
  return *std::min_element(values.begin(), values.end(),
                           [&](double a, double b) { return std::abs(a - to) < std::abs(b - to); });
}

/// The peak of a rank that peak_mem_gib speaks of.
auto peak_of(const MeasuredRow& row, const Estimate& estimate) {
  const bool reserved = row.mem_basis.find("reserved") != std::string::npos;
  const bool layered = estimate.run.layout.cuda_graph_impl == CudaGraphImpl::transformer_engine;
  const bool before_graphs = layered && rows::bridge_release(rows::cell(row, "release"));
  return [=, first = row.peak_of_first_step](const RankMemory& rank) {
    if (first && !reserved) return in_gib(rank.peak_first_step);
    if (reserved) return in_gib(rank.peak_reserved);
    return in_gib(before_graphs ? rank.peak_before_graphs : rank.peak);
  };
}

struct Score {
  std::vector<double> errors;
  void add(const std::optional<ValidatedRow::Figure>& f) {
    if (f) errors.push_back(std::abs(error_pct(f->predicted, f->measured)));
  }
  [[nodiscard]] Json json() const {
    double sum = 0, worst = 0;
    for (const double e : errors) {
      sum += e;
      worst = std::max(worst, e);
    }
    if (errors.empty()) return {{"n", 0}, {"mape_pct", nullptr}, {"max_ape_pct", nullptr}};
    return {{"n", errors.size()},
            {"mape_pct", sum / static_cast<double>(errors.size())},
            {"max_ape_pct", worst}};
  }
};

/// Every row of an A/B group against the group's first row with a peak of the same kind.
Json ab_deltas(const std::vector<MeasuredRow>& rows, const std::vector<ValidatedRow>& validated) {
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string name = rows::cell(rows[i], "ab_group");
    if (!name.empty() && rows[i].peak_mem_gib && validated[i].predicted_peak_gib)
      groups[name].push_back(i);
  }
  int n = 0, right = 0;
  Json pairs = Json::array();
  for (const auto& [name, members] : groups) {
    for (const std::size_t i : members) {
      const std::size_t base = *std::find_if(members.begin(), members.end(), [&](std::size_t k) {
        return rows[k].peak_of_first_step == rows[i].peak_of_first_step;
      });
      if (base == i) continue;
      const double was = *rows[i].peak_mem_gib - *rows[base].peak_mem_gib;
      const double is = *validated[i].predicted_peak_gib - *validated[base].predicted_peak_gib;
      const bool sign = std::abs(was) < 0.5 || was * is > 0;
      const bool close = std::abs(is - was) <= std::max(3.0, 0.3 * std::abs(was));
      ++n;
      right += sign && close ? 1 : 0;
      pairs.push_back({{"a", rows[base].id},
                       {"b", rows[i].id},
                       {"measured_delta_gib", was},
                       {"predicted_delta_gib", is},
                       {"right", sign && close}});
    }
  }
  return {{"n", n}, {"right", right}, {"pairs", pairs}};
}

}  // namespace

void read_memory_figures(MeasuredRow& row) {
  row.at_rest_gib = figure(row, "at_rest_gib", "at rest ([0-9.]+) GiB");
  row.reserved_gib = figure(row, "reserved_gib", "reserved ([0-9.]+) GiB");
  row.params_rank = figure(row, "params_rank", "params on rank 0 ([0-9]+)");
  row.peak_of_first_step =
      row.peak_mem_gib &&
      (says(row, "after step 1") || says(row, "peak after iteration 1") || early_bridge_log(row));
  if (row.peak_mem_gib && !row.peak_of_first_step && rows::cell(row, "status") == "oom") {
    row.peak_mem_gib.reset();
    row.notes.push_back("allocated when memory ran out, which is less than the peak: not compared");
  }
}

void read_first_step_sources(std::vector<MeasuredRow>& rows) {
  std::set<std::string> sources;
  for (const MeasuredRow& row : rows) {
    if (row.peak_mem_gib && says(row, "after step 1")) sources.insert(rows::cell(row, "source"));
  }
  sources.erase("");
  for (MeasuredRow& row : rows) {
    if (!row.peak_mem_gib || row.peak_of_first_step || says(row, "iteration") ||
        sources.count(rows::cell(row, "source")) == 0)
      continue;
    row.peak_of_first_step = true;
    row.notes.push_back("peak memory is read as that of step 1, as in other rows of the source");
  }
}

double predicted_peak_gib(const MeasuredRow& row, const Estimate& estimate) {
  return held_against(row, estimate, peak_of(row, estimate)) - held_before_gib(row, estimate);
}

void compare_memory(const MeasuredRow& row, const Estimate& e, ValidatedRow& out) {
  const auto figure = [&](double measured, auto value) {
    return ValidatedRow::Figure{held_against(row, e, value), measured};
  };
  out.predicted_peak_gib = predicted_peak_gib(row, e);
  if (row.peak_mem_gib)
    out.memory_error_pct = error_pct(*out.predicted_peak_gib, *row.peak_mem_gib);
  out.stage_peaks_gib.clear();
  if (row.peak_mem_gib && early_bridge_log(row)) {
    for (const RankMemory& rank : e.ranks) out.stage_peaks_gib.push_back(peak_of(row, e)(rank));
  }
  if (row.at_rest_gib) {
    out.at_rest_gib =
        figure(*row.at_rest_gib, [](const RankMemory& r) { return in_gib(r.at_rest); });
    out.at_rest_gib->predicted -= held_before_gib(row, e);
  }
  if (row.params_rank)
    out.params_rank = {e.ranks.empty() ? 0 : e.ranks.front().params, *row.params_rank};
  // torch's reserved memory holds no context and no communicators
  if (row.reserved_gib) {
    out.reserved_gib = figure(*row.reserved_gib, [](const RankMemory& r) {
      return in_gib(r.peak_reserved - r.outside_allocator);
    });
  }
}

void choose_stages(const std::vector<MeasuredRow>& rows, std::vector<ValidatedRow>& validated) {
  std::map<std::string, double> offsets;  // forecast - measured of a group's first row
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ValidatedRow& out = validated[i];
    if (out.stage_peaks_gib.empty()) continue;
    const double measured = *rows[i].peak_mem_gib;
    const std::string group = rows::cell(rows[i], "ab_group");
    const auto known = group.empty() ? offsets.end() : offsets.find(group);
    const double offset = known == offsets.end() ? 0 : known->second;
    out.predicted_peak_gib = nearest(out.stage_peaks_gib, measured + offset);
    out.memory_error_pct = error_pct(*out.predicted_peak_gib, measured);
    if (!group.empty()) offsets.emplace(group, *out.predicted_peak_gib - measured);
  }
}

Json memory_summary(const std::vector<MeasuredRow>& rows,
                    const std::vector<ValidatedRow>& validated) {
  Score peak, rest, reserved, params;
  int ran = 0, fit = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (const auto& forecast = validated[i].predicted_peak_gib; forecast && rows[i].peak_mem_gib)
      peak.add(ValidatedRow::Figure{*forecast, *rows[i].peak_mem_gib});
    rest.add(validated[i].at_rest_gib);
    reserved.add(validated[i].reserved_gib);
    params.add(validated[i].params_rank);
    const bool forecast = validated[i].predicted_peak_gib.has_value();
    if (rows::cell(rows[i], "status") != "ok" || !forecast) continue;
    ++ran;
    fit += validated[i].status != "does_not_fit" ? 1 : 0;
  }
  return {{"peak", peak.json()},
          {"at_rest", rest.json()},
          {"reserved", reserved.json()},
          {"params_per_rank", params.json()},
          {"ran_and_fits", {{"n", ran}, {"right", fit}}},
          {"ab_deltas", ab_deltas(rows, validated)}};
}

}  // namespace moecast
