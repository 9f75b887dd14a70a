#include <memory>

#include "cli/command.hpp"
#include "cli/knob_flags.hpp"
#include "core/document.hpp"
#include "layout/pipeline_plan.hpp"
#include "layout/run_file.hpp"
#include "moecast/evaluator.hpp"
#include "moecast/model_io.hpp"

namespace moecast::cli {
namespace {

struct EstimateArgs {
  std::string run;
  std::vector<std::string> sets;
  Output output;
  std::string trace;
  bool print_run = false, memory_detail = false;
};

std::optional<PipelinePlan> plan_of(const Run& run) {
  const Result<ModelSpec> model = load_model(run.model, run.model_overrides, run.base_dir);
  if (!model) return std::nullopt;
  const Result<PipelinePlan> plan =
      plan_pipeline(model.value(), run.layout, run.pipeline_model_parallel_layout, run.seq_length);
  return plan ? std::optional(plan.value()) : std::nullopt;
}

std::string text_of(const EstimateArgs& args, const Estimate& e, const Style& style) {
  std::string text = estimate_text(e, plan_of(e.run), style);
  const auto largest = static_cast<std::size_t>(e.largest_rank);
  if (args.memory_detail && largest < e.ranks.size())
    text += memory_detail_text(e.ranks[largest], style);
  return text;
}

int run_estimate(const EstimateArgs& args) {
  const Result<Run> run = read_run(args.run, args.sets);
  if (!run) return fail(run.problems(), args.output.json);
  if (args.print_run) {
    const Json completed = run_to_json(run.value());
    return deliver(args.output, kSuccess, completed,
                   [&](const Style&) { return to_yaml(completed); });
  }
  const Result<Estimate> forecast =
      estimate(run.value(), {.trace = !args.trace.empty(), .memory_detail = args.memory_detail});
  if (!forecast) return fail(located(forecast.problems(), args.run), args.output.json);
  const Estimate& e = forecast.value();
  if (!args.trace.empty()) {
    const Diagnostics problems = write_file(args.trace, dump(trace_json(e)));
    if (!problems.empty()) return fail(problems, args.output.json);
  }
  return deliver(args.output, e.fits ? kSuccess : kNegative, estimate_json(e, args.memory_detail),
                 [&](const Style& style) { return text_of(args, e, style); });
}

}  // namespace

Command add_estimate(CLI::App& root) {
  const auto args = std::make_shared<EstimateArgs>();
  CLI::App* app = root.add_subcommand("estimate",
                                      "Forecast one layout: step time, TFLOPS/GPU, memory of every "
                                      "pipeline rank, wall, what would help");
  CLI::Option* run = app->add_option("RUN", args->run, "Run file, YAML or JSON")->type_name("FILE");
  add_output_options(*app, args->output);
  app->add_option("--trace", args->trace, "Write a Chrome/Perfetto trace of the simulated step")
      ->type_name("FILE");
  app->add_flag("--print-run", args->print_run, "Print the completed run file and stop");
  app->add_flag("--memory-detail", args->memory_detail,
                "Add the tree of what fills memory, with formulas");
  add_knob_flags(*app, args->sets, {});
  return {app, {run}, [args] { return run_estimate(*args); }};
}

}  // namespace moecast::cli
