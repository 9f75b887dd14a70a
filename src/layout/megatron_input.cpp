#include "layout/megatron_input.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "core/text.hpp"
#include "layout/megatron_readers.hpp"

namespace moecast {
namespace {

constexpr std::string_view kKindNames[] = {"megatron-lm", "megatron-yaml", "bridge", "harness"};
constexpr std::string_view kRunKey = "# moecast: ";

std::string_view stripped(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  return line.substr(0, line.find_last_not_of(kBlank) + 1);
}

/// Calls f(line, number) for the lines that are neither blank nor comments.
void each_line(std::string_view text, auto f) {
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = stripped(text.substr(0, end));
    if (!line.empty()) f(line, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// An export says in comments what Megatron has no word for.
void read_run_keys(std::string_view text, MegatronInput& input) {
  each_line(text, [&](std::string_view line, int number) {
    if (line.starts_with(kRunKey))
      input.run_keys.emplace_back(std::string(line.substr(kRunKey.size())), number);
  });
}

struct Shape {
  int lines = 0, overrides = 0, pairs = 0;  ///< path=value; key: value
  bool options = false;                     ///< a word --option
};

Shape shape_of(std::string_view text) {
  Shape shape;
  each_line(text, [&](std::string_view line, int) {
    if (line[0] == '#') return;
    ++shape.lines;
    const bool option_key = line.starts_with("--") && line.find(": ") < line.find(' ');
    const bool yaml = line.ends_with(":") || line.find(": ") != std::string_view::npos;
    if (!split_override(line).first.empty() && line.find(" --") == std::string_view::npos)
      ++shape.overrides;
    if (yaml) ++shape.pairs;
    shape.options |= !option_key && (line.starts_with("--") || line.starts_with("-tp ") ||
                                     line.find(" --") != std::string_view::npos);
  });
  return shape;
}

enum class Syntax : std::uint8_t { commands, overrides, tree };

Syntax syntax_of(std::string_view text, const std::string& from) {
  const std::string_view start =
      stripped(text.substr(text.find_first_not_of(" \t\r\n") == std::string_view::npos
                               ? text.size()
                               : text.find_first_not_of(" \t\r\n")));
  if (start.starts_with("{")) return Syntax::tree;
  const Shape shape = shape_of(text);
  if (from == "megatron-yaml") return Syntax::tree;
  if (from == "megatron-lm" || from == "harness") return Syntax::commands;
  const bool mostly_pairs = shape.lines > 0 && 2 * shape.pairs > shape.lines;
  if (from == "bridge") return mostly_pairs ? Syntax::tree : Syntax::overrides;
  if (shape.lines > 0 && shape.overrides == shape.lines) return Syntax::overrides;
  if (mostly_pairs && !text.starts_with("#!")) return Syntax::tree;
  const bool exports =
      shape.overrides > 0 && !shape.options && text.find(".py") == std::string_view::npos;
  return exports ? Syntax::overrides : Syntax::commands;  // overrides with `export X=y` lines
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Diagnostic{path, 0, 0, "", "cannot be read", "check the name and permissions"};
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return Diagnostic{path, 0, 0, "", "cannot be read", "is it a file?"};
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

std::string_view to_string(InputKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }
std::vector<std::string> input_kind_names() {
  return {std::begin(kKindNames), std::end(kKindNames)};
}

Diagnostic MegatronInput::problem(std::string_view name, std::string message,
                                  std::string hint) const {
  const auto found = given.find(std::string(name));
  const bool known = found != given.end();
  return {file,
          known ? found->second.line : 0,
          0,
          known ? found->second.spelling : std::string(name),
          std::move(message),
          std::move(hint)};
}

bool is_moecast_file(std::string_view text) {
  bool ours = false;
  each_line(text, [&](std::string_view line, int) {
    ours |= line.starts_with("schema:") || line.starts_with("\"schema\"") ||
            line.find("\"architectures\"") != std::string_view::npos ||
            line.find("\"schema\": \"moecast/") != std::string_view::npos ||
            line.find("\"schema\":\"moecast/") != std::string_view::npos ||
            line.find("\"model_type\"") != std::string_view::npos;
  });
  return ours;
}

Result<MegatronInput> read_megatron_text(std::string_view text, const std::string& file,
                                         const InputOptions& options) {
  MegatronInput input;
  input.file = file;
  OptionReader reader(input, options.variables);
  check_text(text, {file, {}}, reader.problems);
  const auto names = input_kind_names();
  const auto kind = std::find(names.begin(), names.end(), options.from);
  const bool fixed = kind != names.end();
  if (fixed) input.kind = static_cast<InputKind>(kind - names.begin());
  if (!options.from.empty() && !fixed) {
    reader.fail(0, "--from", fmt::format("'{}' is no kind of input", options.from),
                suggestion(options.from, names));
  }
  if (!reader.problems.empty()) return reader.problems;

  const Syntax syntax = syntax_of(text, options.from);
  if (syntax == Syntax::tree) {
    const Result<Document> doc = parse_document(text, file);
    if (!doc) return doc.problems();
    if (!doc.value().root.is_map())
      return doc.value().problem(doc.value().root.mark, "", "must be a map of options", "");
    read_argument_tree(doc.value(), options, input, reader);
  } else if (syntax == Syntax::overrides) {
    input.kind = InputKind::bridge;
    input.flavour = Flavour::bridge;
    input.config = default_config(input.flavour);
    read_overrides(text, options, reader);
  } else {
    read_commands(text, options, fixed, input, reader);
  }
  read_run_keys(text, input);
  if (reader.problems.empty() && input.given.empty() && input.run_keys.empty())
    reader.fail(0, "", "has no option that moecast knows", "see docs/formats.md, section import");
  if (!reader.problems.empty()) return reader.problems;
  if (input.config.world_size == 1 && input.gpus > 0) input.config.world_size = input.gpus;
  if (input.is_given("world_size")) input.gpus = input.config.world_size;
  return input;
}

Result<MegatronInput> read_megatron_input(const std::string& path, const InputOptions& options) {
  const Result<std::string> text = read_file(path);
  if (!text) return text.problems();
  return read_megatron_text(text.value(), path, options);
}

}  // namespace moecast
