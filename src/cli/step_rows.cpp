#include "cli/step_rows.hpp"

#include <cmath>

#include "estimate/evaluate.hpp"
#include "moecast/model_spec.hpp"

namespace moecast::cli {
namespace {

/// Rows with a measured rate whose run can be forecast; `at` = their places in `rows`.
std::vector<StepRow> step_rows(const std::vector<MeasuredRow>& rows, const ValidateOptions& options,
                               std::vector<std::size_t>& at) {
  std::vector<StepRow> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MeasuredRow& row = rows[i];
    if (!row.run || !row.tflops_per_gpu || *row.tflops_per_gpu <= 0) continue;
    Run run = *row.run;
    if (!options.system_override.empty()) run.system = options.system_override;
    if (!options.stack_override.empty()) run.software.container = options.stack_override;
    auto problem = make_problem(run, false);
    if (!problem) continue;
    StepRow step{row.id,         run.model,  run.system, run.software.container,
                 problem.take(), run.layout, 0};
    const Problem& p = step.problem;
    step.seconds = model_flops_per_token(p.model, p.seq_length, run.layout.tp) * p.seq_length *
                   p.global_batch_size / (*row.tflops_per_gpu * 1e12 * p.world);
    Evaluator evaluator(p);
    if (!(evaluator.evaluate(step.layout, Depth::exact).step > 0)) continue;
    at.push_back(i);
    out.push_back(std::move(step));
  }
  return out;
}

}  // namespace

StepStudy study_steps(const std::vector<MeasuredRow>& rows, const ValidateOptions& options) {
  std::vector<std::size_t> at;
  StepModel model(step_rows(rows, options, at), options.threads);
  const StepSolution full = fit_steps(model);
  const auto groups = leave_out(model, full, [&](std::size_t i) { return model.group(i); });
  const auto releases =
      leave_out(model, full, [&](std::size_t i) { return model.rows()[i].release; });
  StepStudy study;
  study.fit = summarise(model, full, groups);
  CrossValidation& cross = study.cross;
  cross.fitted_parameters = static_cast<int>(model.parameters().size());
  for (auto* list : {&cross.by_group, &cross.by_release, &cross.in_sample})
    list->resize(rows.size());
  const auto spread = [&](const LeftOut& r) {
    return study.fit.half_width * interval_sd(study.fit, r.parameter_sd);
  };
  for (std::size_t k = 0; k < at.size(); ++k) {
    cross.by_group[at[k]] = {groups[k].log_error, spread(groups[k])};
    cross.by_release[at[k]] = {releases[k].log_error, spread(releases[k])};
    cross.in_sample[at[k]] = {full.residuals[static_cast<Eigen::Index>(k)], 0};
  }
  return study;
}

}  // namespace moecast::cli
