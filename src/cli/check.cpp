#include <algorithm>
#include <memory>

#include "cli/command.hpp"
#include "cli/knob_flags.hpp"
#include "estimate/legal.hpp"
#include "layout/pipeline_plan.hpp"
#include "layout/run_file.hpp"

namespace moecast::cli {
namespace {

struct CheckArgs {
  std::string input;
  std::vector<std::string> sets;
  Output output;
};

/// Layout strings are no rule of the table: planning the pipeline reads them.
void add_plan_problems(const Problem& problem, const Run& run, std::vector<Finding>& findings) {
  const Result<PipelinePlan> plan =
      plan_pipeline(problem.model, run.layout, run.pipeline_model_parallel_layout, run.seq_length);
  const bool refused = std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
    return f.severity == Severity::error &&
           std::find(f.keys.begin(), f.keys.end(), "layout.pp") != f.keys.end();
  });
  if (refused) return;
  for (const Diagnostic& d : plan.problems())
    findings.insert(findings.begin(),
                    {"PIPELINE-LAYOUT", Severity::error, {d.key}, d.message, d.hint, "", false});
}

Result<std::vector<Finding>> findings_of(const Run& run) {
  const Result<Problem> problem = make_problem(run);
  if (!problem) return problem.problems();
  const Problem& p = problem.value();
  std::vector<Finding> findings =
      check_rules(rule_input(p, run.layout, parse_versions(p.software)));
  add_plan_problems(p, run, findings);
  return findings;
}

int run_check(const CheckArgs& args) {
  const Result<Run> run = read_run(args.input, args.sets);
  if (!run) return fail(run.problems(), args.output.json);
  const Result<std::vector<Finding>> checked = findings_of(run.value());
  if (!checked) return fail(located(checked.problems(), args.input), args.output.json);
  const std::vector<Finding>& findings = checked.value();
  bool errors = false;
  for (const Finding& finding : findings) errors |= finding.severity == Severity::error;
  return deliver(args.output, errors ? kNegative : kSuccess, check_json(findings),
                 [&](const Style& style) { return check_text(args.input, findings, style); });
}

}  // namespace

Command add_check(CLI::App& root) {
  const auto args = std::make_shared<CheckArgs>();
  CLI::App* app = root.add_subcommand("check",
                                      "Every Megatron-Core / Megatron-Bridge constraint that a run "
                                      "file breaks, with cause and fix");
  CLI::Option* input =
      app->add_option("INPUT", args->input, "Run file, YAML or JSON")->type_name("FILE");
  add_output_options(*app, args->output);
  add_knob_flags(*app, args->sets, {});
  return {app, {input}, [args] { return run_check(*args); }};
}

}  // namespace moecast::cli
