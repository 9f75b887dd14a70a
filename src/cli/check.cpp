#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "cli/command.hpp"
#include "cli/knob_flags.hpp"
#include "cli/megatron_args.hpp"
#include "estimate/legal.hpp"
#include "layout/diagnose.hpp"
#include "layout/megatron_input.hpp"
#include "layout/pipeline_plan.hpp"
#include "layout/run_file.hpp"
#include "layout/verdict.hpp"

namespace moecast::cli {
namespace {

struct CheckArgs {
  std::string input, batch, error;
  std::string launcher;  ///< --for; empty = the kind of the input, bridge for run files
  MegatronArgs megatron;
  std::vector<std::string> sets;
  Output output;
};

Flavour flavour_of(const CheckArgs& args) {
  return args.launcher == to_string(Flavour::megatron_lm) ? Flavour::megatron_lm : Flavour::bridge;
}

bool is_error(const Finding& f) { return f.severity == Severity::error; }

Result<Checked> check_run_file(const Run& run, Flavour flavour) {
  const Result<Problem> problem = make_problem(run);
  if (!problem) return problem.problems();
  const Problem& p = problem.value();
  Legality legality(p, flavour);
  legality.input(run.layout);
  Checked checked = checked_of(legality.subject());
  if (std::any_of(checked.findings.begin(), checked.findings.end(), is_error)) return checked;
  Result<PipelinePlan> plan =
      plan_pipeline(p.model, run.layout, run.pipeline_model_parallel_layout, run.seq_length);
  if (plan) checked.plan = plan.take();
  for (const Diagnostic& d : plan.problems()) {  // no rule knows it: still no layout to train
    checked.findings.insert(
        checked.findings.begin(),
        {"PIPELINE-LAYOUT", Severity::error, {d.key}, d.message, d.hint, "", Phase::build});
  }
  return checked;
}

/// Nothing of an input says how many ranks its launcher starts: then the smallest world is checked.
int smallest_world(const MegatronConfig& c, Flavour flavour) {
  Layout l;
  l.tp = std::max(1, c.tensor_model_parallel_size);
  l.pp = std::max(1, c.pipeline_model_parallel_size);
  l.cp = std::max(1, c.context_parallel_size);
  l.ep = std::max(1, c.expert_model_parallel_size);
  l.etp = std::max(
      1, c.expert_tensor_parallel_size.value_or(flavour == Flavour::bridge && l.ep > 1 ? 1 : l.tp));
  return static_cast<int>(std::min(minimum_gpus(l), 1L << 20));
}

int deliver_checked(const CheckArgs& args, const Checked& checked) {
  const bool errors = std::any_of(checked.findings.begin(), checked.findings.end(), is_error);
  return deliver(args.output, errors ? kNegative : kSuccess, check_json(checked),
                 [&](const Style& style) { return check_text(args.input, checked, style); });
}

/// Overrides do not describe the model that a recipe brings: nothing can be said about it.
void leave_out_model(const std::string& file, Checked& checked) {
  std::erase_if(checked.findings, [](const Finding& f) {
    return std::find(f.keys.begin(), f.keys.end(), "model") != f.keys.end();
  });
  std::fprintf(stderr,
               "warning: %s: the model is not described: rules that read it are not checked; "
               "moecast import FILE --model NAME gives a run to check\n",
               file.c_str());
}

int check_megatron(const CheckArgs& args) {
  if (!args.sets.empty()) {
    return fail({usage(args.sets.front(), "changes run files only", "import the input first")},
                args.output.json);
  }
  const Result<MegatronInput> read = read_megatron_input(args.input, input_options(args.megatron));
  if (!read) return fail(read.problems(), args.output.json);
  const MegatronInput& input = read.value();
  const Flavour flavour = args.launcher.empty() ? input.flavour : flavour_of(args);
  MegatronConfig config = input.config;
  for (const Diagnostic& warning : input.warnings)
    std::fprintf(stderr, "warning: %s\n", to_string(warning).c_str());
  if (!input.is_given("world_size")) {
    config.world_size = input.gpus > 0 ? input.gpus : smallest_world(config, flavour);
    if (input.gpus == 0) {
      std::fprintf(stderr, "warning: %s: the number of GPUs is not stated; checked for %d\n",
                   args.input.c_str(), config.world_size);
    }
  }
  Surroundings at = surroundings_of(config, flavour);
  const bool has_model = config.num_layers > 0;
  Checked checked = checked_of(Checkable(std::move(config), std::move(at)));
  if (!has_model) leave_out_model(args.input, checked);
  return deliver_checked(args, checked);
}

/// A run file, or something that its reader explains best.
bool is_run_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) return true;
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return is_moecast_file(text);
}

int run_check(const CheckArgs& args) {
  if (!args.megatron.from.empty() || !is_run_file(args.input)) return check_megatron(args);
  const Result<Run> run = read_run(args.input, args.sets);
  if (!run) return fail(run.problems(), args.output.json);
  const Result<Checked> checked = check_run_file(run.value(), flavour_of(args));
  if (!checked) return fail(located(checked.problems(), args.input), args.output.json);
  return deliver_checked(args, checked.value());
}

/// One answer per line, also of lines that cannot be read.
int run_batch(const CheckArgs& args) {
  std::ifstream in(args.batch, std::ios::binary);
  if (!in) {
    return fail({{args.batch, 0, 0, "", "cannot be read", "check that the file exists"}},
                args.output.json);
  }
  std::string answers;
  const bool to_file = !args.output.file.empty();
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    answers += line_of(verdict_of_line(line, flavour_of(args))) + "\n";
    if (to_file || answers.size() < (1u << 16)) continue;
    std::fwrite(answers.data(), 1, answers.size(), stdout);
    answers.clear();
  }
  if (in.bad())
    return fail({{args.batch, 0, 0, "", "cannot be read", "is it a file?"}}, args.output.json);
  if (to_file) {
    const Diagnostics problems = write_file(args.output.file, answers);
    return problems.empty() ? kSuccess : fail(problems, args.output.json);
  }
  return print(answers, kSuccess);
}

int run_diagnosis(const CheckArgs& args) {
  const std::vector<Diagnosis> found = diagnose(args.error);
  return deliver(args.output, found.empty() ? kNegative : kSuccess, diagnosis_json(found),
                 [&](const Style& style) { return diagnosis_text(found, style); });
}

int run_one(const CheckArgs& args) {
  Diagnostics problems;
  const int asked = !args.input.empty() + !args.batch.empty() + !args.error.empty();
  if (asked == 0) problems.push_back(usage("INPUT", "is required", "see moecast check --help"));
  if (asked > 1) {
    problems.push_back(
        usage("check", "takes one of INPUT, --batch and --error", "give one of them"));
  }
  const std::vector<std::string> launchers{"bridge", "megatron-lm"};
  if (!args.launcher.empty() &&
      std::find(launchers.begin(), launchers.end(), args.launcher) == launchers.end()) {
    problems.push_back(usage("--for", "no launcher '" + args.launcher + "'",
                             suggestion(args.launcher, launchers)));
  }
  if (!problems.empty()) return fail(problems, args.output.json);
  if (!args.batch.empty()) return run_batch(args);
  return args.error.empty() ? run_check(args) : run_diagnosis(args);
}

}  // namespace

Command add_check(CLI::App& root) {
  const auto args = std::make_shared<CheckArgs>();
  CLI::App* app = root.add_subcommand(
      "check",
      "What Megatron-Core, Megatron-LM or Megatron-Bridge would refuse, warn about or "
      "change, with cause and fix");
  app->add_option(
         "INPUT", args->input,
         "Run file, Megatron-LM arguments or launch script, Megatron-Bridge overrides, or a "
         "performance harness command")
      ->type_name("FILE");
  app->add_option("--for", args->launcher,
                  "Whose validation is meant, bridge or megatron-lm (default: the kind of the "
                  "input; a run file: bridge)")
      ->type_name("LAUNCHER");
  app->add_option(
         "--batch", args->batch,
         "Answer every line {\"id\",\"knobs\":{...}} of this file, knobs in Megatron's names")
      ->type_name("FILE.jsonl");
  app->add_option("--error", args->error,
                  "Find the rule behind an assertion message or the end of a traceback")
      ->type_name("TEXT");
  add_megatron_options(*app, args->megatron);
  add_output_options(*app, args->output);
  add_knob_flags(*app, args->sets, {});
  return {app, {}, [args] { return run_one(*args); }};
}

}  // namespace moecast::cli
