#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/command.hpp"
#include "cli/export_files.hpp"
#include "cli/knob_flags.hpp"
#include "core/document.hpp"
#include "layout/run_file.hpp"

namespace moecast::cli {
namespace {

struct ExportArgs {
  std::string run, target;
  std::vector<std::string> sets;
  Output output;
};

Json export_json(const ExportArgs& args, const Run& run, const Exported& exported) {
  return {{"schema", "moecast/export@1"},
          {"to", args.target},
          {"run", run_to_json(run)},
          {"text", exported.text},
          {"warnings", error_json(exported.warnings).at("errors")}};
}

int run_export(const ExportArgs& args) {
  const auto kind = export_kind(args.target);
  if (!kind) {
    return fail({usage("--to", "'" + args.target + "' is no kind of export",
                       suggestion(args.target, export_kind_names()))},
                args.output.json);
  }
  const Result<Run> run = read_run(args.run, args.sets);
  if (!run) return fail(run.problems(), args.output.json);
  const Result<Exported> exported = export_of(run.value(), *kind);
  if (!exported) return fail(located(exported.problems(), args.run), args.output.json);
  for (const Diagnostic& warning : located(exported.value().warnings, args.run))
    std::fprintf(stderr, "warning: %s\n", to_string(warning).c_str());
  return deliver(args.output, kSuccess, export_json(args, run.value(), exported.value()),
                 [&](const Style&) { return exported.value().text; });
}

}  // namespace

Command add_export(CLI::App& root) {
  const auto args = std::make_shared<ExportArgs>();
  CLI::App* app = root.add_subcommand(
      "export",
      "Write a run as Megatron-LM script, Megatron-Bridge overrides, performance harness command, "
      "or dry run of one rank");
  CLI::Option* run = app->add_option("RUN", args->run, "Run file, YAML or JSON")->type_name("FILE");
  CLI::Option* to =
      app->add_option("--to", args->target, fmt::format("{}", fmt::join(export_kind_names(), ", ")))
          ->type_name("KIND");
  add_output_options(*app, args->output);
  add_knob_flags(*app, args->sets, {});
  return {app, {run, to}, [args] { return run_export(*args); }};
}

}  // namespace moecast::cli
