#include <cstdio>
#include <cstring>

#include "cli/command.hpp"
#include "core/document.hpp"

namespace moecast::cli {
namespace {

bool asks_for_json(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--json") == 0) return true;
  return false;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& root) {
  std::vector<std::string> names;
  for (const CLI::App* app : root.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(app->get_name());
  return names;
}

/// Unknown options with the nearest known one; stray words only when no option is unknown, as they
/// are its value then.
Diagnostics leftovers(const CLI::App& app) {
  Diagnostics problems, words;
  const std::vector<std::string> names = option_names(app);
  for (const std::string& word : app.remaining()) {
    if (word.size() < 2 || word[0] != '-') {
      words.push_back(
          usage(word, "unexpected argument", "see moecast " + app.get_name() + " --help"));
      continue;
    }
    const std::string name = word.substr(0, word.find('='));
    const std::string nearest = nearest_name(name, names);
    problems.push_back(usage(name, "unknown option",
                             nearest.empty() ? "see moecast " + app.get_name() + " --help"
                                             : "did you mean '" + nearest + "'?"));
  }
  return problems.empty() ? words : problems;
}

Diagnostics command_problems(const Command& command) {
  Diagnostics problems = leftovers(*command.app);
  for (const CLI::Option* option : command.required) {
    if (option->count() == 0) {
      problems.push_back(usage(option->get_name(), "is required",
                               "see moecast " + command.app->get_name() + " --help"));
    }
  }
  return problems;
}

int no_command(const CLI::App& root, bool json) {
  const std::vector<std::string> rest = root.remaining();
  if (rest.empty() || (json && rest.size() == 1 && rest[0] == "--json")) {
    if (!json) std::fputs(root.help().c_str(), stderr);
    return json ? fail({usage("", "no command given", "see moecast --help")}, json) : kBadInput;
  }
  const std::string& word = rest.front();
  const bool option = word.size() > 1 && word[0] == '-';
  const auto names = option ? option_names(root) : command_names(root);
  return fail({usage(word, option ? "unknown option" : "unknown command", suggestion(word, names))},
              json);
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  CLI::App root{
      "Forecasts training of Mixture-of-Experts models with Megatron-Core / Megatron-Bridge:\n"
      "step time, memory and the dominant wall of a layout, and the best layouts of a cluster.",
      "moecast"};
  root.set_version_flag("--version", "moecast " MOECAST_VERSION);
  root.require_subcommand(0, 1);
  root.allow_extras();
  const std::vector<Command> commands{
      add_search(root), add_estimate(root), add_whatif(root), add_check(root),     add_import(root),
      add_export(root), add_validate(root), add_kernel(root), add_calibrate(root), add_list(root)};
  for (const Command& command : commands) command.app->allow_extras();

  const bool json = asks_for_json(argc, argv);
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return root.exit(error);  // --help, --version
    return fail({usage("", error.what(), "see moecast --help")}, json);
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const Diagnostics problems = command_problems(command);
    return problems.empty() ? command.run() : fail(problems, json);
  }
  return no_command(root, json);
}

}  // namespace moecast::cli
