#pragma once
/// Runs the real program, as a user's script would.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace moecast::test {

struct Outcome {
  int exit_code = 0;  ///< 128 + n when signal n ended the program, as in a shell
  std::string out;
  std::string err;
  /// All of stdout as one JSON document; throws (fails the test) when it is anything else.
  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(out); }
};

struct RunOptions {
  std::string working_dir;               ///< empty = this process's
  std::vector<std::string> environment;  ///< NAME=value, over the inherited environment
};

/// Runs moecast with `args`. Standard input is empty, stdout and stderr are no terminals.
Outcome run(const std::vector<std::string>& args, const RunOptions& options = {});

/// The same for any program: command[0] is its path.
Outcome run_program(const std::vector<std::string>& command, const RunOptions& options = {});

}  // namespace moecast::test
