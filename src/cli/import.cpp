#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/megatron_args.hpp"
#include "core/document.hpp"
#include "layout/megatron_import.hpp"
#include "layout/run_file.hpp"
#include "moecast/model_io.hpp"
#include "report/import_json.hpp"

namespace moecast::cli {
namespace {

namespace fs = std::filesystem;

struct ImportArgs {
  std::string file, output;
  int seq_length = 4096;
  bool json = false;
  MegatronArgs megatron;
  ImportOptions run;
};

void print_warnings(const std::string& file, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    std::fprintf(stderr, "%s: warning: %s\n", file.c_str(), warning.c_str());
}

int import_model(const ImportArgs& args) {
  const Result<ModelSpec> model = load_model(args.file, Json::object(), "");
  if (!model) return fail(located(model.problems(), args.file), args.json);
  const std::string yaml = to_yaml(model_to_json(model.value()));
  if (!args.output.empty()) {
    const Diagnostics problems = write_file(args.output, yaml);
    if (!problems.empty()) return fail(problems, args.json);
  }
  print_warnings(args.file, model.value().warnings);
  return deliver({args.json, ""}, kSuccess, imported_model_json(model.value(), args.seq_length),
                 [&](const Style&) { return args.output.empty() ? yaml : std::string(); });
}

/// run.yaml -> run-model.yaml
fs::path model_path(const std::string& run_path) {
  const fs::path run(run_path);
  return run.parent_path() / (run.stem().string() + "-model.yaml");
}

/// The run, and before it the model that it names; neither without the other.
Diagnostics write_run(const ImportArgs& args, ImportedRun& imported) {
  if (imported.model) {
    const fs::path path = model_path(args.output);
    imported.model->name = path.stem().string();
    imported.run.model = path.filename().string();
    Diagnostics problems = write_file(path.string(), to_yaml(model_to_json(*imported.model)));
    if (!problems.empty()) return problems;
  }
  Diagnostics problems = write_file(args.output, to_yaml(run_to_json(imported.run)));
  std::error_code ignored;
  if (!problems.empty() && imported.model) fs::remove(model_path(args.output), ignored);
  return problems;
}

int import_megatron(const ImportArgs& args) {
  const Result<MegatronInput> input = read_megatron_input(args.file, input_options(args.megatron));
  if (!input) return fail(input.problems(), args.json);
  Result<ImportedRun> read = import_run(input.value(), args.run);
  if (!read) return fail(read.problems(), args.json);
  ImportedRun& imported = read.value();
  if (imported.model && args.output.empty() && !args.json) {
    return fail({usage("-o",
                       "is required: no shipped model is the same, so that the model is "
                       "written beside the run",
                       "add -o run.yaml, or --model NAME")},
                args.json);
  }
  if (!args.output.empty()) {
    const Diagnostics problems = write_run(args, imported);
    if (!problems.empty()) return fail(problems, args.json);
  }
  for (const Diagnostic& warning : imported.warnings)
    std::fprintf(stderr, "warning: %s\n", to_string(warning).c_str());
  return deliver({args.json, ""}, kSuccess, imported_run_json(input.value(), imported),
                 [&](const Style&) {
                   return args.output.empty() ? to_yaml(run_to_json(imported.run)) : std::string();
                 });
}

/// A config.json, a file of ours, or a shipped model's name.
bool is_model(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || fs::is_directory(file)) return true;  // what is wrong is said there
  std::string text(std::size_t{4} << 20, '\0');    // what a file of ours may have at most
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return fs::path(file).filename() == "config.json" || is_moecast_file(text);
}

int run_import(const ImportArgs& args) {
  return args.megatron.from.empty() && is_model(args.file) ? import_model(args)
                                                           : import_megatron(args);
}

}  // namespace

Command add_import(CLI::App& root) {
  const auto args = std::make_shared<ImportArgs>();
  CLI::App* app = root.add_subcommand(
      "import",
      "Turn Megatron-LM arguments, launch scripts, Megatron-Bridge overrides or a performance "
      "harness command into a run file, and a Hugging Face config.json into a model file");
  CLI::Option* file =
      app->add_option("FILE", args->file, "Script, arguments, overrides, or config.json")
          ->type_name("FILE");
  app->add_flag("--json", args->json, "Print one JSON document (docs/formats.md) instead of YAML");
  app->add_option("-o,--output", args->output, "Write the YAML to this file")->type_name("FILE");
  add_megatron_options(*app, args->megatron);
  app->add_option("--model", args->run.model, "Model of the run, instead of what the input says");
  app->add_option("--system", args->run.system, "System of the run");
  app->add_option("--gpus", args->run.gpus, "GPUs of the run")->check(CLI::Range(1, 1 << 20));
  app->add_option("--set", args->run.sets, "Override any key of the run file; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app->add_option("--seq-length", args->seq_length,
                  "Sequence length that FLOPs of a config.json are counted at")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  return {app, {file}, [args] { return run_import(*args); }};
}

}  // namespace moecast::cli
