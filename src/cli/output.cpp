#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/command.hpp"
#include "core/document.hpp"

namespace moecast::cli {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

/// stdout may be a full disk or a closed pipe: then the exit code says so.
int print(const std::string& text, int code) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && whole) return code;
  std::fputs("moecast: cannot write to standard output\n", stderr);
  return kBadInput;
}

void add_output_options(CLI::App& app, Output& output) {
  app.add_flag("--json", output.json, "Print one JSON document (docs/formats.md) instead of text");
  app.add_option("-o,--output", output.file,
                 "Also write the result to this file (JSON with --json or *.json)")
      ->type_name("FILE");
}

Style terminal_style() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string(term) == "dumb";
  return {isatty(STDOUT_FILENO) == 1 && !dumb && (no_color == nullptr || *no_color == '\0')};
}

int deliver(const Output& output, int code, const Json& document,
            const std::function<std::string(const Style&)>& text) {
  if (!output.file.empty()) {
    const bool as_json = output.json || ends_with(output.file, ".json");
    const Diagnostics problems = write_file(output.file, as_json ? dump(document) : text(Style{}));
    if (!problems.empty()) return fail(problems, output.json);
  }
  return print(output.json ? dump(document) : text(terminal_style()), code);
}

int fail(const Diagnostics& problems, bool json) {
  if (json) return print(dump(error_json(problems)), kBadInput);
  for (const Diagnostic& problem : problems)
    std::fprintf(stderr, "%s\n", to_string(problem).c_str());
  return kBadInput;
}

Diagnostic usage(std::string key, std::string message, std::string hint) {
  return {"command line", 0, 0, std::move(key), std::move(message), std::move(hint)};
}

Diagnostics write_file(const std::string& path, const std::string& text) {
  const std::string problem = write_file_atomically(path, text);
  if (problem.empty()) return {};
  return {{path, 0, 0, "", problem, "check that the folder exists and can be written to"}};
}

}  // namespace moecast::cli
