#include "cli/megatron_args.hpp"

#include <fmt/format.h>

namespace moecast::cli {

void add_megatron_options(CLI::App& app, MegatronArgs& args) {
  app.add_option("--from", args.from,
                 fmt::format("Kind of the input, instead of by its content: {}",
                             fmt::join(input_kind_names(), ", ")))
      ->type_name("KIND");
  app.add_option("--var", args.variables,
                 "Value of a shell variable that the input leaves open; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        return text.find('=') == std::string::npos ? "'" + text + "' is not NAME=VALUE"
                                                   : std::string();
      });
}

InputOptions input_options(const MegatronArgs& args) {
  InputOptions options;
  options.from = args.from;
  for (const std::string& pair : args.variables) {
    const std::size_t equals = pair.find('=');
    options.variables[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return options;
}

}  // namespace moecast::cli
