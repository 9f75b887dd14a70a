// The fit of parameters to measured steps: steps made by known parameters are the oracle.
#include <cmath>

#include "calibrate/steps/step_fit.hpp"
#include "catch.hpp"
#include "estimate/evaluate.hpp"
#include "estimate/interval.hpp"
#include "temp_dir.hpp"

using namespace moecast;

namespace {

Run run_of(const char* model, int ep, int micro_batch, int micro_batches) {
  Run run;
  run.model = model;
  run.system = "dgx-h100";
  run.gpus = 8;
  run.seq_length = 4096;
  run.layout.ep = ep;
  run.layout.micro_batch_size = micro_batch;
  run.global_batch_size = 8 * micro_batch * micro_batches;
  run.model_overrides["num_hidden_layers"] = 4;
  return run;
}

double step_of(const Problem& p, const Layout& l) {
  Evaluator evaluator(p);
  return evaluator.evaluate(l, Depth::exact).step;
}

Parameter parameter(const std::string& path) {
  for (const Parameter& p : parameter_table())
    if (p.path == path) return p;
  throw std::logic_error(path);
}

/// Steps of a machine whose GEMMs and launches are other than the profile says.
std::vector<StepRow> made_rows(double gemm, double launch) {
  std::vector<StepRow> rows;
  for (const char* model : {"qwen3-30b-a3b", "mixtral-8x7b"}) {
    for (const int micro_batch : {1, 2}) {
      for (const int micro_batches : {2, 8}) {
        const Run run = run_of(model, 8, micro_batch, micro_batches);
        auto problem = make_problem(run, false);
        REQUIRE(problem.ok());
        Problem changed = problem.value();
        parameter("gemm.bf16.efficiency").in(changed.profile.calibration) *= gemm;
        parameter("launch.host_us").in(changed.profile.calibration) *= launch;
        rows.push_back({"row", model, run.system, micro_batch == 1 ? "a" : "b", problem.take(),
                        run.layout, step_of(changed, run.layout)});
      }
    }
  }
  return rows;
}

double squares(const Eigen::VectorXd& r) { return r.squaredNorm() / static_cast<double>(r.size()); }

}  // namespace

TEST_CASE("does the fit explain steps of a slower machine, and stay at its priors for its own?") {
  StepModel same(made_rows(1, 1), 1);
  const StepSolution nothing = fit_steps(same);
  for (Eigen::Index j = 0; j < nothing.x.size(); ++j) CHECK(std::abs(nothing.x[j]) < 1e-3);

  StepModel slower(made_rows(0.85, 1.5), 1);
  const double before = squares(slower.residuals(
      Eigen::VectorXd::Zero(static_cast<Eigen::Index>(slower.parameters().size()))));
  const StepSolution fitted = fit_steps(slower);
  CHECK(squares(fitted.residuals) < 0.1 * before);
  for (std::size_t j = 0; j < slower.parameters().size(); ++j) {
    const auto i = static_cast<Eigen::Index>(j);
    const StepParameter& t = slower.parameters()[j];
    const std::string& path = parameter_table()[static_cast<std::size_t>(t.index)].path;
    if (path == "gemm.bf16.efficiency") CHECK(fitted.x[i] < 0);
    if (path == "launch.host_us") CHECK(fitted.x[i] > 0);
    CHECK(fitted.covariance(i, i) <= t.prior_sd * t.prior_sd * 1.0001);  // data only narrow
  }

  // a group that was left out is forecast by the others: worse than in sample, better than unfitted
  const auto left = leave_out(slower, fitted, [&](std::size_t i) { return slower.group(i); });
  double out = 0;
  for (const LeftOut& row : left) {
    out += row.log_error * row.log_error / static_cast<double>(left.size());
    CHECK(row.parameter_sd > 0);
  }
  CHECK(out >= squares(fitted.residuals));
  CHECK(out < before);
}

TEST_CASE("does a stack file carry a fit to the forecast, but not over what was measured?") {
  StepModel model(made_rows(0.85, 1.5), 1);
  const StepSolution full = fit_steps(model);
  const auto left = leave_out(model, full, [&](std::size_t i) { return model.rows()[i].release; });
  const StepFit fit = summarise(model, full, left);
  const test::TempDir dir;
  const std::string path = dir.file("own.yaml", stack_text(fit, "own", "current", "a test"));
  const auto loaded = load_stack(path);
  REQUIRE(loaded.ok());
  const Stack& stack = loaded.value().stack;
  REQUIRE(stack.fit.factors.size() == fit.factors.size());
  CHECK(stack.fit.rows == 8);

  const StepRow& row = model.rows().front();
  Problem moved = row.problem;
  apply_stack(stack, moved.system(), moved.profile);
  CHECK(std::abs(std::log(step_of(moved, row.layout) / row.seconds) - full.residuals[0]) < 2e-3);

  Profile measured = row.problem.profile;
  measured.values["gemm.bf16.efficiency"].kind = "measured";
  const double kept = measured.calibration.gemm[0].efficiency;
  apply_stack(stack, moved.system(), measured);
  CHECK(measured.calibration.gemm[0].efficiency == kept);
}

TEST_CASE("is a stack with slower GEMMs told apart from the machine of all stacks?") {
  const std::string path = "gemm.bf16.efficiency";
  std::vector<StepRow> rows = made_rows(1, 1);
  for (StepRow slow : made_rows(0.85, 1)) {
    slow.problem.stack.deviations.push_back({"stack ours", path, 0.3, "a test"});
    rows.push_back(std::move(slow));
  }
  StepModel model(rows, 1);
  const StepSolution full = fit_steps(model);
  double ours = 0, all = 0;
  for (std::size_t j = 0; j < model.parameters().size(); ++j) {
    const StepParameter& t = model.parameters()[j];
    if (parameter_table()[static_cast<std::size_t>(t.index)].path != path) continue;
    (t.scope == "stack ours" ? ours : all) = full.x[static_cast<Eigen::Index>(j)];
  }
  CHECK(ours < 0.6 * std::log(0.85));
  CHECK(std::abs(all) < 0.5 * std::abs(ours));

  // the factor is carried to the forecast of that stack, and to no other
  Stack stack;
  stack.fit = summarise(model, full, leave_out(model, full, [&](std::size_t i) {
                          return model.group(i) + (i < rows.size() / 2 ? "" : " ours");
                        }));
  const auto efficiency = [&](const StepRow& row) {
    Problem p = row.problem;
    Stack under = stack;
    under.deviations = row.problem.stack.deviations;
    apply_stack(under, p.system(), p.profile);
    return parameter(path).in(p.profile.calibration);
  };
  CHECK_THAT(efficiency(rows.back()) / efficiency(rows.front()), WithinRel(std::exp(ours), 1e-9));
}

TEST_CASE("is the ratio of two alike layouts surer than either step?") {
  Run run = run_of("qwen3-30b-a3b", 8, 1, 8);
  auto problem = make_problem(run);
  REQUIRE(problem.ok());
  const Problem& p = problem.value();
  const Sensitivity one = sensitivity(p, run.layout, step_of(p, run.layout));
  const double alone = half_width(p, one);
  CHECK_THAT(ratio_half_width(p, one, one), WithinRel(1.645 * p.stack.fit.pair_sd, 1e-9));
  CHECK(ratio_half_width(p, one, one) < alone);
  CHECK(out_of_domain(p, run.layout).empty());
  run.system = "dgx-h800";
  auto elsewhere = make_problem(run);
  REQUIRE(elsewhere.ok());
  CHECK_FALSE(out_of_domain(elsewhere.value(), run.layout).empty());
  const Sensitivity unknown =
      sensitivity(elsewhere.value(), run.layout, step_of(elsewhere.value(), run.layout));
  CHECK(unknown.others > 0);
}
