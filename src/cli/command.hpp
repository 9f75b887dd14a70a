#pragma once
/// What the sub-commands share: how they are declared, and how results and problems leave the
/// program.
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "moecast/result.hpp"
#include "report/report.hpp"

namespace moecast::cli {

/// docs/formats.md "Exit codes".
enum ExitCode : int { kSuccess = 0, kNegative = 1, kBadInput = 2, kMissing = 3 };

/// A sub-command that is parsed but not run yet.
struct Command {
  CLI::App* app = nullptr;
  std::vector<CLI::Option*>
      required;  ///< checked here, so that they are reported beside everything else
  std::function<int()> run;
};

/// One file per command declares it.
Command add_search(CLI::App& root);
Command add_estimate(CLI::App& root);
Command add_check(CLI::App& root);
Command add_import(CLI::App& root);
Command add_export(CLI::App& root);
Command add_validate(CLI::App& root);
Command add_kernel(CLI::App& root);
Command add_calibrate(CLI::App& root);
Command add_whatif(CLI::App& root);
Command add_list(CLI::App& root);

/// --json and -o.
struct Output {
  bool json = false;
  std::string file;
};
void add_output_options(CLI::App& app, Output& output);

/// Colours only for a terminal, and not with NO_COLOR (https://no-color.org).
Style terminal_style();

/// Prints the result and, with -o, writes it too (as JSON with --json or to a *.json file). Returns
/// `code`, or kBadInput when the file cannot be written: then nothing is printed but the problem.
int deliver(const Output& output, int code, const Json& document,
            const std::function<std::string(const Style&)>& text);

/// Text to stdout; kBadInput when it cannot be written.
int print(const std::string& text, int code);

/// stderr lines, or the error document on stdout. Returns kBadInput.
int fail(const Diagnostics& problems, bool json);

/// A problem of the command line.
Diagnostic usage(std::string key, std::string message, std::string hint);

/// Writes a file beside the main result.
Diagnostics write_file(const std::string& path, const std::string& text);

/// Fills file, line and column of problems that only name a key, from the run file that sets it.
Diagnostics located(Diagnostics problems, const std::string& run_file);

/// Parses the command line and runs what it asks for; never throws for bad input.
int run_program(int argc, const char* const* argv);

}  // namespace moecast::cli
