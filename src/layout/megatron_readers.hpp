#pragma once
/// The readers of the four kinds of input; megatron_input.cpp chooses among them.
#include <string_view>

#include "core/document.hpp"
#include "core/shell.hpp"
#include "layout/megatron_options.hpp"

namespace moecast {

/// A shell script, a command line, or a file with one option per line: Megatron-LM arguments, Hydra
/// overrides or options of the harness. Sets the kind unless it is `fixed`.
void read_commands(std::string_view text, const InputOptions& options, bool fixed,
                   MegatronInput& input, OptionReader& reader);

/// path=value lines of Bridge.
void read_overrides(std::string_view text, const InputOptions& options, OptionReader& reader);

/// The YAML files: Megatron-LM's arguments (flat, or under ENV_VARS and MODEL_ARGS) or Bridge's
/// configuration (nested or dotted).
void read_argument_tree(const Document& doc, const InputOptions& options, MegatronInput& input,
                        OptionReader& reader);

/// model.x=y, ++model.x=y, +model.x=y: path and value. Empty path = no override.
std::pair<std::string, std::string> split_override(std::string_view word);

/// An option of the performance harness, -tp or --tensor_model_parallel_size; false when it is none
/// of its own.
bool read_harness_option(const std::string& spelling, const std::vector<std::string>& words,
                         int line, MegatronInput& input, OptionReader& reader);
/// setup_experiment.py, run_script.py.
bool is_harness_script(std::string_view word);

}  // namespace moecast
