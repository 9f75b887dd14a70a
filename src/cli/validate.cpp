#include <filesystem>
#include <memory>

#include "cli/command.hpp"
#include "cli/step_rows.hpp"
#include "moecast/validation.hpp"

namespace moecast::cli {
namespace {

struct ValidateArgs {
  std::string rows;
  std::vector<std::string> where;
  ValidateOptions options;
  std::optional<double> max_mape;
  std::string kernels;
  bool cross_validate = false, fit = false;
  Output output;
};

/// No rows with a measurement: nothing is proved, so a limit is not met.
bool within_limit(const Validation& validation, const std::optional<double>& limit) {
  if (!limit) return true;
  const auto mape = validation.summary.find("mape_pct");
  return mape != validation.summary.end() && mape->is_number() && mape->get<double>() <= *limit;
}

/// With --fit the main result, and so what -o names, is the stack.
int write_stack(const ValidateArgs& args, const StepStudy& study, const Validation& validation) {
  const std::string base =
      args.options.stack_override.empty() ? "current" : args.options.stack_override;
  const std::string text =
      stack_text(study.fit, std::filesystem::path(args.output.file).stem().string(), base,
                 "moecast validate --fit " + std::filesystem::path(args.rows).filename().string());
  if (const Diagnostics problems = write_file(args.output.file, text); !problems.empty())
    return fail(problems, args.output.json);
  Output screen = args.output;
  screen.file.clear();
  return deliver(screen, kSuccess, validation_json(validation),
                 [&](const Style& style) { return validation_text(validation, style); });
}

int run_validate(const ValidateArgs& args) {
  const Result<std::vector<MeasuredRow>> rows = read_measured_rows(args.rows, args.where);
  if (!rows) return fail(rows.problems(), args.output.json);
  Validation validation = validate_rows(rows.value(), args.options);
  if (!args.kernels.empty()) {
    auto classes = compare_kernel_classes(args.kernels, validation.rows);
    if (!classes) return fail(classes.problems(), args.output.json);
    validation.kernel_classes = classes.take();
  }
  if (args.cross_validate || args.fit) {
    const StepStudy study = study_steps(rows.value(), args.options);
    validation.cross_validation = cross_validation_summary(rows.value(), study.cross);
    if (args.fit) return write_stack(args, study, validation);
  }
  return deliver(args.output, within_limit(validation, args.max_mape) ? kSuccess : kNegative,
                 validation_json(validation),
                 [&](const Style& style) { return validation_text(validation, style); });
}

}  // namespace

Command add_validate(CLI::App& root) {
  const auto args = std::make_shared<ValidateArgs>();
  CLI::App* app =
      root.add_subcommand("validate", "Forecast every measured row of a CSV and report the errors");
  CLI::Option* rows =
      app->add_option("ROWS", args->rows, "CSV file of measured runs")->type_name("FILE.csv");
  app->add_option("--where", args->where,
                  "Only rows with column=value or column!=value; repeatable")
      ->type_name("COLUMN=VALUE")
      ->allow_extra_args(false);
  app->add_option("--system", args->options.system_override,
                  "System or calibrated profile to use for every row")
      ->type_name("PROFILE");
  app->add_option("--stack", args->options.stack_override, "Software stack to use for every row")
      ->type_name("FILE");
  app->add_option("--kernels", args->kernels,
                  "Kernel-class times of profiled steps, by id: compare class by class")
      ->type_name("FILE.csv");
  app->add_flag("--cross-validate", args->cross_validate,
                "Refit without each (model, system) group, and without each release, and report "
                "the errors of what was left out");
  app->add_flag("--fit", args->fit,
                "Fit the parameters to these rows and write a stack file with -o (use it with "
                "--stack or software.container)");
  app->add_option("--threads", args->options.threads, "Threads; 0 = all cores")
      ->check(CLI::Range(0, 4096));
  app->add_option("--max-mape", args->max_mape,
                  "Exit 1 when the mean absolute error is above this many percent")
      ->type_name("PERCENT")
      ->check(CLI::NonNegativeNumber);
  add_output_options(*app, args->output);
  return {app, {rows}, [args] { return run_validate(*args); }};
}

}  // namespace moecast::cli
