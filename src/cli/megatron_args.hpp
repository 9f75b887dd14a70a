#pragma once
/// What import and check ask about inputs of Megatron: --from, --var.
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "layout/megatron_input.hpp"

namespace moecast::cli {

struct MegatronArgs {
  std::string from;
  std::vector<std::string> variables;  ///< NAME=VALUE
};
void add_megatron_options(CLI::App& app, MegatronArgs& args);
InputOptions input_options(const MegatronArgs& args);

}  // namespace moecast::cli
