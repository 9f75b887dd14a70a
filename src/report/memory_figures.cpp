#include "report/memory_figures.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

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

bool of_first_step(const MeasuredRow& row) {
  return says(row, "after step 1") || says(row, "peak after iteration 1") || early_bridge_log(row);
}

/// The pipeline rank that a figure is of: the first, the largest, or whichever printed it.
enum class Of : unsigned char { first, largest, nearest };
Of rank_of(const MeasuredRow& row) {
  if (row.mem_basis.find("rank-0") != std::string::npos) return Of::first;
  return early_bridge_log(row) ? Of::nearest : Of::largest;
}

/// The ranks' value that `measured` is held against.
template <typename Value>
double held_against(const Estimate& e, Of of, double measured, Value value) {
  if (e.ranks.empty()) return 0;
  double chosen = value(e.ranks.front());
  for (const RankMemory& rank : e.ranks) {
    const double other = value(rank);
    const bool better = of == Of::largest ? other > chosen
                        : of == Of::nearest
                            ? std::abs(other - measured) < std::abs(chosen - measured)
                            : false;
    if (better) chosen = other;
  }
  return chosen;
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
        return of_first_step(rows[k]) == of_first_step(rows[i]);
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
}

double predicted_peak_gib(const MeasuredRow& row, const Estimate& estimate) {
  const bool reserved = row.mem_basis.find("reserved") != std::string::npos;
  const bool first = of_first_step(row);
  const bool layered = estimate.run.layout.cuda_graph_impl == CudaGraphImpl::transformer_engine;
  const bool before_graphs = layered && rows::bridge_release(rows::cell(row, "release"));
  return held_against(estimate, rank_of(row), row.peak_mem_gib.value_or(0),
                      [&](const RankMemory& rank) {
                        if (first && !reserved) return in_gib(rank.peak_first_step);
                        if (reserved) return in_gib(rank.peak_reserved);
                        return in_gib(before_graphs ? rank.peak_before_graphs : rank.peak);
                      });
}

void compare_memory(const MeasuredRow& row, const Estimate& e, ValidatedRow& out) {
  const Of rank = rank_of(row);
  const auto figure = [&](double measured, auto value) {
    return ValidatedRow::Figure{held_against(e, rank, measured, value), measured};
  };
  if (row.at_rest_gib)
    out.at_rest_gib =
        figure(*row.at_rest_gib, [](const RankMemory& r) { return in_gib(r.at_rest); });
  if (row.params_rank)
    out.params_rank = {e.ranks.empty() ? 0 : e.ranks.front().params, *row.params_rank};
  // torch's reserved memory holds no context and no communicators
  if (row.reserved_gib)
    out.reserved_gib = figure(*row.reserved_gib, [](const RankMemory& r) {
      return in_gib(r.peak_reserved - r.outside_allocator);
    });
}

Json memory_summary(const std::vector<MeasuredRow>& rows,
                    const std::vector<ValidatedRow>& validated) {
  Score rest, reserved, params;
  int ran = 0, fit = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rest.add(validated[i].at_rest_gib);
    reserved.add(validated[i].reserved_gib);
    params.add(validated[i].params_rank);
    const bool forecast = validated[i].predicted_peak_gib.has_value();
    if (rows::cell(rows[i], "status") != "ok" || !forecast) continue;
    ++ran;
    fit += validated[i].status != "does_not_fit" ? 1 : 0;
  }
  return {{"at_rest", rest.json()},
          {"reserved", reserved.json()},
          {"params_per_rank", params.json()},
          {"ran_and_fits", {{"n", ran}, {"right", fit}}},
          {"ab_deltas", ab_deltas(rows, validated)}};
}

}  // namespace moecast
