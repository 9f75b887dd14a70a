#include "moecast/validation.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include <fmt/format.h>

#include "moecast/evaluator.hpp"
#include "report/memory_figures.hpp"
#include "report/validation_summary.hpp"

namespace moecast {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, "; "));
}

void refused(const Diagnostics& problems, ValidatedRow& out) {
  const bool illegal = !problems.empty() && !problems.front().message.empty() &&
                       problems.front().message.front() == '[';
  out.status = illegal ? "illegal" : "unsupported";
  std::vector<std::string> parts;
  for (const Diagnostic& problem : problems) parts.push_back(to_string(problem));
  out.detail = joined(parts);
}

/// The fullest rank decides time and what fits, but a log prints the memory of one rank, whose rows
/// are the mean on average.
void hold_to_mean_rank(const MeasuredRow& row, Run run, EstimateOptions quick, ValidatedRow& out) {
  run.routing = {};
  quick.enforce_rules = false;
  const auto even = estimate(run, quick);
  if (!even) return;
  compare_memory(row, even.value(), out);
  out.detail += "; its memory figure is held against a rank with the mean of the rows";
}

ValidatedRow validate_row(const MeasuredRow& row, const ValidateOptions& options) {
  ValidatedRow out;
  out.id = row.id;
  out.measured_tflops_per_gpu = row.tflops_per_gpu;
  out.measured_peak_gib = row.peak_mem_gib;
  if (!row.run) {
    out.status = "unsupported";
    out.detail = row.unsupported;
    return out;
  }
  Run run = *row.run;
  if (!options.system_override.empty()) run.system = options.system_override;
  if (!options.stack_override.empty()) run.software.container = options.stack_override;
  try {
    EstimateOptions quick;
    quick.advice = false;
    auto forecast = estimate(run, quick);
    if (!forecast) {
      refused(forecast.problems(), out);
      if (out.status != "illegal") return out;
      // it ran where it was measured: today's rules say otherwise, the forecast stands all the same
      quick.enforce_rules = false;
      forecast = estimate(run, quick);
      if (!forecast) return out;
    } else {
      out.status = forecast.value().fits ? "ok" : "does_not_fit";
      out.detail = joined(row.notes);
    }
    compare(row, forecast.value(), out);
    if (row.imbalance_assumed && row.peak_mem_gib) hold_to_mean_rank(row, run, quick, out);
  } catch (const std::exception& error) {  // one bad row must not take the others with it
    out.status = "unsupported";
    out.detail = error.what();
  }
  return out;
}

}  // namespace

Validation validate_rows(const std::vector<MeasuredRow>& rows, const ValidateOptions& options) {
  Validation result;
  result.rows.resize(rows.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < rows.size(); i = next++)
      result.rows[i] = validate_row(rows[i], options);
  };
  const unsigned wanted = options.threads > 0 ? static_cast<unsigned>(options.threads)
                                              : std::thread::hardware_concurrency();
  const std::size_t count =
      std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(rows.size(), 1));
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < count; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  choose_stages(rows, result.rows);
  result.groups = ab_groups(rows, result.rows);
  result.summary = validation_summary(rows, result.rows, result.groups);
  return result;
}

}  // namespace moecast
