// Shell scripts and command lines.
#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "layout/megatron_readers.hpp"

namespace moecast {
namespace {

using ShellWords = std::vector<ShellWord>;

bool is_option(std::string_view word) {
  if (word.starts_with("--")) return word.size() > 2;
  return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1]));
}

bool is_script(std::string_view word) { return word.ends_with(".py") && !is_option(word); }

/// Where the options of the training script begin, after the launcher's.
std::size_t first_argument(const ShellWords& words) {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (is_script(words[i].text)) return i + 1;
  return is_option(words.empty() ? "" : words.front().text) ? 0 : words.size();
}

std::string name_of(const std::string& option) { return option.substr(0, option.find('=')); }

/// How many words the field table, or Hydra's syntax, knows.
int known_words(const ShellCommand& command, bool harness) {
  int known = 0;
  const std::size_t first = first_argument(command.words);
  const std::size_t start = first == command.words.size() ? 0 : first;
  for (std::size_t i = start; i < command.words.size(); ++i) {
    const std::string& word = command.words[i].text;
    if (is_option(word)) known += harness || find_flag(name_of(word)).field != nullptr;
    if (!split_override(word).first.empty()) ++known;
  }
  return known;
}

bool runs_harness(const ShellCommand& command) {
  return std::any_of(command.words.begin(), command.words.end(),
                     [](const ShellWord& w) { return is_harness_script(w.text); });
}

std::optional<int> positive(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size() && value > 0;
  return good ? std::optional(value) : std::nullopt;
}

/// Ranks that a launcher starts. Ref: torchrun, srun, mpirun manuals.
struct Launch {
  std::optional<int> nodes, per_node, ranks;
  bool torchrun = false;

  void option(const std::string& name, const std::string& value) {
    const auto number = positive(value);
    if (!number) return;
    if (name == "--nnodes" || name == "-N" || name == "--nodes") nodes = number;
    if (name == "--nproc-per-node" || name == "--nproc_per_node" || name == "--ntasks-per-node" ||
        name == "--gpus-per-node")
      per_node = number;
    if (name == "-n" || name == "--ntasks" || name == "-np") ranks = number;
  }

  void read(const ShellWords& words, std::size_t end) {
    for (std::size_t i = 0; i < end; ++i) {
      const std::string& word = words[i].text;
      torchrun |= word.ends_with("torchrun") || word == "torch.distributed.run";
      const std::size_t equals = word.find('=');
      if (!is_option(word)) continue;
      if (equals != std::string::npos) {
        option(word.substr(0, equals), word.substr(equals + 1));
      } else if (i + 1 < end) {
        option(word, words[i + 1].text);
      }
    }
  }

  /// #SBATCH --nodes=32
  void read_directives(std::string_view text) {
    for (std::size_t at = text.find("#SBATCH"); at != std::string_view::npos;
         at = text.find("#SBATCH", at + 1)) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      ShellWords words;
      std::string word;
      for (const char c : text.substr(at + 7, end - at - 7)) {
        if (c != ' ' && c != '\t' && c != '\r') {
          word += c;
        } else if (!word.empty()) {
          words.push_back({std::exchange(word, ""), 0});
        }
      }
      if (!word.empty()) words.push_back({word, 0});
      read(words, words.size());
    }
  }

  [[nodiscard]] int world() const {
    if (nodes && per_node) {
      const long long all = static_cast<long long>(*nodes) * *per_node;
      return all <= (1 << 20) ? static_cast<int>(all) : 0;
    }
    if (ranks) return *ranks;
    if (torchrun && per_node) return *per_node;  // torchrun's default is one node
    return 0;
  }
};

int world_from_variables(const std::map<std::string, std::string>& variables) {
  Launch launch;
  for (const auto& [name, value] : variables) {
    if (name == "WORLD_SIZE") launch.ranks = positive(value);
    if (name == "NNODES" || name == "NUM_NODES") launch.nodes = positive(value);
    if (name == "GPUS_PER_NODE" || name == "NPROC_PER_NODE") launch.per_node = positive(value);
  }
  return launch.world();
}

/// The options of one training command, one by one.
class CommandReader {
 public:
  CommandReader(const InputOptions& options, MegatronInput& input, OptionReader& reader)
      : options_(options), input_(input), reader_(reader) {}

  void read(const ShellWords& words, std::size_t first) {
    const bool hydra = input_.flavour == Flavour::bridge;
    for (std::size_t i = first; i < words.size();) {
      const ShellWord& word = words[i++];
      const auto [path, value] = split_override(word.text);
      if (hydra && !path.empty()) {
        reader_.assignment(path, value, word.line);
        continue;
      }
      if (!is_option(word.text)) continue;
      std::vector<std::string> values;
      const std::size_t equals = word.text.find('=');
      if (equals != std::string::npos) values.push_back(word.text.substr(equals + 1));
      const bool pair = word.text == "-E" || word.text == "--env";  // A.B=C is its value
      while (i < words.size() && !is_option(words[i].text) &&
             !(hydra && !split_override(words[i].text).first.empty() && !(pair && values.empty())))
        values.push_back(words[i++].text);
      option(name_of(word.text), std::move(values), word.line);
    }
  }

 private:
  void option(const std::string& name, std::vector<std::string> values, int line) {
    for (std::string& value : values) value = expand_text(value, options_.variables);
    const bool harness = input_.kind == InputKind::harness;
    if (harness && read_harness_option(name, values, line, input_, reader_)) return;
    reader_.flag(name, std::move(values), line);
  }

  const InputOptions& options_;
  MegatronInput& input_;
  OptionReader& reader_;
};

/// Files with one option per line and no command: one command.
void join_bare_options(std::vector<ShellCommand>& commands) {
  ShellCommand joined;
  std::erase_if(commands, [&](const ShellCommand& command) {
    if (!is_option(command.words.front().text)) return false;
    joined.words.insert(joined.words.end(), command.words.begin(), command.words.end());
    return true;
  });
  if (!joined.words.empty()) commands.push_back(std::move(joined));
}

const ShellCommand* training_command(const std::vector<ShellCommand>& commands,
                                     MegatronInput& input) {
  const ShellCommand* best = nullptr;
  int most = 0, rivals = 0;
  for (const ShellCommand& command : commands) {
    const int known = known_words(command, runs_harness(command));
    if (known == 0) continue;
    ++rivals;
    if (known < most) continue;
    best = &command;
    most = known;
  }
  if (rivals > 1) {
    input.warnings.push_back(
        {input.file, best->words.front().line, 0, "",
         fmt::format("{} commands have training options; the one that starts on this line is read",
                     rivals),
         "keep one command in the file for another"});
  }
  return best;
}

bool has_overrides(const ShellCommand& command) {
  return std::any_of(command.words.begin(), command.words.end(),
                     [](const ShellWord& w) { return !split_override(w.text).first.empty(); });
}

}  // namespace

std::pair<std::string, std::string> split_override(std::string_view word) {
  while (!word.empty() && (word[0] == '+' || word[0] == '~')) word.remove_prefix(1);
  for (const std::string_view prefix : {"config_container.", "cfg."})
    if (word.starts_with(prefix)) word.remove_prefix(prefix.size());
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return {};
  const std::string_view path = word.substr(0, equals);
  bool dotted = path == "mixed_precision";
  for (std::size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    const bool dot = c == '.' && i > 0 && i + 1 < path.size();
    dotted |= dot;
    if (!dot && !std::isalnum(static_cast<unsigned char>(c)) && c != '_') return {};
  }
  if (!dotted) return {};
  return {std::string(path), std::string(word.substr(equals + 1))};
}

void read_commands(std::string_view text, const InputOptions& options, bool fixed,
                   MegatronInput& input, OptionReader& reader) {
  ShellScript script = read_shell(text, input.file, options.variables);
  input.warnings = script.warnings;
  join_bare_options(script.commands);
  const ShellCommand* command = training_command(script.commands, input);
  if (command == nullptr) {
    return reader.fail(0, "", "has no command with options of Megatron",
                       "give a training command, a run file or a list of overrides");
  }
  if (!fixed && runs_harness(*command)) {
    input.kind = InputKind::harness;
  } else if (!fixed) {
    input.kind = has_overrides(*command) ? InputKind::bridge : InputKind::megatron_lm;
  }
  const bool lm = input.kind == InputKind::megatron_lm || input.kind == InputKind::megatron_yaml;
  input.flavour = lm ? Flavour::megatron_lm : Flavour::bridge;
  input.config = default_config(input.flavour);

  const std::size_t first = first_argument(command->words);
  Launch launch;
  launch.read_directives(text);
  for (const ShellCommand& other : script.commands) {
    if (&other != command && first_argument(other.words) == other.words.size())
      launch.read(other.words, other.words.size());  // srun ... bash -c "python ..."
  }
  launch.read(command->words, first);
  input.gpus = launch.world() > 0 ? launch.world() : world_from_variables(script.variables);

  for (const auto& [name, value] : script.environment) reader.environment(name, value);
  for (const auto& [name, value] : command->env) reader.environment(name, value);
  CommandReader(options, input, reader)
      .read(command->words, first == command->words.size() ? 0 : first);
}

void read_overrides(std::string_view text, const InputOptions& options, OptionReader& reader) {
  int line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string words(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t start = words.find_first_not_of(" \t");
    const bool exports = start != std::string::npos && words.compare(start, 7, "export ") == 0;
    if (!exports) words.insert(0, "overrides ");  // a command: a=b would be an assignment
    const ShellScript script = read_shell(words, "", options.variables);
    for (const auto& [name, value] : script.environment) reader.environment(name, value);
    for (const ShellCommand& command : script.commands) {
      for (std::size_t i = 1; i < command.words.size(); ++i) {
        const std::string& word = command.words[i].text;
        const auto [path, value] = split_override(word);
        if (!path.empty()) {
          reader.assignment(path, value, line);
        } else if (word != "\\") {
          reader.warn(line, word, "is no override", "write path=value");
        }
      }
    }
  }
}

}  // namespace moecast
