#pragma once
/// What a launch script says, read without running anything: variables, arrays, line continuations,
/// conditions that can be decided. What only a real shell knows stays as written: ${MASTER_ADDR}.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "moecast/result.hpp"

namespace moecast {

struct ShellWord {
  std::string text;
  int line = 0;  ///< where the text was written, also when it came through a variable
};

struct ShellCommand {
  std::vector<ShellWord> words;
  std::map<std::string, std::string> env;  ///< NAME=value before the command
};

struct ShellScript {
  std::vector<ShellCommand> commands;              ///< in the order of the script
  std::map<std::string, std::string> variables;    ///< at the end of the script, arrays excepted
  std::map<std::string, std::string> environment;  ///< the exported ones
  Diagnostics warnings;                            ///< what could not be followed, with its line
};

/// `variables` are set from outside, as if exported before the script runs. Never fails: what makes
/// no sense is a warning.
ShellScript read_shell(std::string_view text, const std::string& file,
                       const std::map<std::string, std::string>& variables = {});

/// The text with its variables replaced, as in double quotes.
std::string expand_text(std::string_view text, const std::map<std::string, std::string>& variables);

/// True when a text still holds an expansion that only a real shell could do.
bool is_undecided(std::string_view text);

/// The names of the variables that an undecided text asks for.
std::vector<std::string> undecided_names(std::string_view text);

}  // namespace moecast
