#include <cstdio>
#include <memory>

#include "cli/command.hpp"
#include "core/document.hpp"
#include "moecast/model_io.hpp"

namespace moecast::cli {
namespace {

struct ImportArgs {
  std::string file, output;
  int seq_length = 4096;
  bool json = false;
};

int run_import(const ImportArgs& args) {
  const Result<ModelSpec> model = load_model(args.file, Json::object(), "");
  if (!model) return fail(located(model.problems(), args.file), args.json);
  const std::string yaml = to_yaml(model_to_json(model.value()));
  if (!args.output.empty()) {
    const Diagnostics problems = write_file(args.output, yaml);
    if (!problems.empty()) return fail(problems, args.json);
  }
  for (const std::string& warning : model.value().warnings)
    std::fprintf(stderr, "%s: warning: %s\n", args.file.c_str(), warning.c_str());
  return deliver({args.json, ""}, kSuccess, imported_model_json(model.value(), args.seq_length),
                 [&](const Style&) { return args.output.empty() ? yaml : std::string(); });
}

}  // namespace

Command add_import(CLI::App& root) {
  const auto args = std::make_shared<ImportArgs>();
  CLI::App* app =
      root.add_subcommand("import", "Turn a Hugging Face config.json into a model file");
  CLI::Option* file = app->add_option("FILE", args->file, "config.json (or a shipped model's name)")
                          ->type_name("FILE");
  app->add_flag("--json", args->json,
                "Print parameters, FLOPs and layer counts as JSON instead of the model YAML");
  app->add_option("-o,--output", args->output, "Write the model YAML to this file")
      ->type_name("FILE");
  app->add_option("--seq-length", args->seq_length, "Sequence length that FLOPs are counted at")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  return {app, {file}, [args] { return run_import(*args); }};
}

}  // namespace moecast::cli
