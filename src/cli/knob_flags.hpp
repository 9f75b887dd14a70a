#pragma once
/// Every knob of the table as a command-line flag: --tp, --tensor-model-parallel-size, ...
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace moecast::cli {

/// Adds --set and a flag per knob (but those of `except`, by key); each use appends "key=value", in
/// the form --set takes.
/// --set comes last, so it wins over a flag.
void add_knob_flags(CLI::App& app, std::vector<std::string>& sets,
                    const std::vector<std::string>& except);

}  // namespace moecast::cli
