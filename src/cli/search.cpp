#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/command.hpp"
#include "cli/export_files.hpp"
#include "cli/knob_flags.hpp"
#include "cli/search_request.hpp"
#include "core/document.hpp"

namespace moecast::cli {
namespace {

struct SearchArgs {
  SearchWords words;
  std::vector<std::string> export_to;  ///< kind, folder
  Output output;
};

/// A bar on stderr, only where somebody can see it; redrawn when the percentage changes.
std::function<void(double)> progress_bar() {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [last = -1](double fraction) mutable {
    const int percent = static_cast<int>(100 * fraction);
    if (percent == last) return;
    last = percent;
    const auto filled = static_cast<std::size_t>(percent * 40 / 100);
    const std::string bar =
        std::string(filled, '=') + std::string(40 - std::min<std::size_t>(filled, 40), ' ');
    fmt::print(stderr, "\r[{}] {:3} %{}", bar, percent, percent >= 100 ? "\r\033[K" : "");
    std::fflush(stderr);
  };
}

/// A search has no run file: its flags named the model and the system.
Diagnostics of_command_line(Diagnostics problems) {
  for (Diagnostic& problem : problems)
    if (problem.file.empty()) problem.file = "command line";
  return problems;
}

Diagnostics check_export(const SearchArgs& args) {
  const auto kinds = search_export_kinds();
  if (args.export_to.empty() ||
      std::find(kinds.begin(), kinds.end(), args.export_to[0]) != kinds.end())
    return {};
  return {{"--export", 0, 0, args.export_to[0], "is no kind of export",
           suggestion(args.export_to[0], kinds)}};
}

int run_search(const SearchArgs& args) {
  Result<SearchRequest> request = make_search_request(args.words);
  Diagnostics problems = request.problems();
  const Diagnostics bad_export = check_export(args);
  problems.insert(problems.end(), bad_export.begin(), bad_export.end());
  if (!problems.empty()) return fail(problems, args.output.json);
  request.value().progress = progress_bar();
  const Result<SearchResult> found = search(request.value());
  if (!found) return fail(of_command_line(found.problems()), args.output.json);
  if (!args.export_to.empty())
    problems = write_ranked(args.export_to[0], args.export_to[1], found.value().ranked);
  if (!problems.empty()) return fail(problems, args.output.json);
  return deliver(
      args.output, found.value().any_fit ? kSuccess : kNegative, search_json(found.value()),
      [&](const Style& style) { return search_text(request.value(), found.value(), style); });
}

}  // namespace

Command add_search(CLI::App& root) {
  const auto args = std::make_shared<SearchArgs>();
  SearchWords& words = args->words;
  CLI::App* app = root.add_subcommand("search",
                                      "Rank the layouts of a model on a cluster: needs --model "
                                      "--system --gpus --seq-length --global-batch-size");
  app->add_option("--precision", words.precisions, "Precisions to search, bf16 unless said")
      ->delimiter(',')
      ->allow_extra_args(false);
  app->add_option("--top", words.top, "Layouts to rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app->add_option("--fix", words.fix, "Give an axis one value; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app->add_option("--vary", words.vary, "Add or replace an axis; repeatable")
      ->type_name("KEY=V1,V2")
      ->allow_extra_args(false);
  app->add_option("--objective", words.objective, "step_time, memory or tokens_per_dollar")
      ->capture_default_str();
  app->add_flag("--exhaustive", words.exhaustive,
                "Simulate every legal layout that fits: the same answer, slower");
  app->add_option("--min-headroom-gib", words.min_headroom_gib, "Memory to leave free")
      ->type_name("GIB")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--threads", words.threads,
                  "Threads; 0 = all cores; the answer does not depend on it")
      ->check(CLI::Range(0, 4096));
  app->add_option("--export", args->export_to,
                  "Write every ranked layout to a folder, as " +
                      fmt::format("{}", fmt::join(search_export_kinds(), ", ")))
      ->type_name("KIND DIR")
      ->expected(2);
  add_output_options(*app, args->output);
  add_knob_flags(*app, words.sets, {"precision"});
  return {app, {}, [args] { return run_search(*args); }};
}

}  // namespace moecast::cli
