#pragma once
/// The flags of every command that searches.
#include <CLI/CLI.hpp>

#include "cli/search_request.hpp"

namespace moecast::cli {

/// --precision, --fix, --objective, ... and the knob flags.
void add_search_flags(CLI::App& app, SearchWords& words);

}  // namespace moecast::cli
