#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.hpp"
#include "cli/export_files.hpp"
#include "cli/long_run.hpp"
#include "cli/search_flags.hpp"
#include "cli/search_request.hpp"
#include "core/document.hpp"
#include "layout/run_file.hpp"

namespace moecast::cli {
namespace {

struct SearchArgs {
  SearchWords words;
  std::vector<std::string> export_to;  ///< kind, folder
  std::vector<std::string> merge;      ///< files of the parts
  Output output;
};

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

/// Flags that say what to do with the answer; all others are the question.
bool is_about_output(const CLI::Option& option) {
  static const std::vector<std::string> kOutput{"--shard",  "--merge",  "--threads", "--json",
                                                "--output", "--export", "--help"};
  return std::any_of(kOutput.begin(), kOutput.end(),
                     [&](const std::string& name) { return option.check_name(name); });
}

std::vector<const CLI::Option*> flags_of_question(const CLI::App& app) {
  return app.get_options(
      [](const CLI::Option* option) { return option->count() > 0 && !is_about_output(*option); });
}

/// What makes two searches the same question: the program, the completed run and the flags.
Json question(const CLI::App& app, const SearchRequest& request) {
  Json flags = Json::object();
  for (const CLI::Option* option : flags_of_question(app))
    flags[option->get_name()] = option->results();
  return {{"moecast", MOECAST_VERSION}, {"run", run_to_json(request.base)}, {"flags", flags}};
}

/// Writes or prints an answer that may be one part of a search, or all parts merged.
int answer(const SearchArgs& args, const SearchRequest& request, const SearchResult& found,
           const Json& document) {
  if (!args.export_to.empty()) {
    const Diagnostics problems = write_ranked(args.export_to[0], args.export_to[1], found.ranked);
    if (!problems.empty()) return fail(problems, args.output.json);
  }
  // a part alone does not say that nothing fits
  const bool positive = found.complete && (found.any_fit || !request.part.whole());
  return deliver(args.output, positive ? kSuccess : kNegative, document,
                 [&](const Style& style) { return search_text(request, found, style); });
}

int run_search(const SearchArgs& args, const CLI::App& app) {
  Result<SearchRequest> made = make_search_request(args.words);
  Diagnostics problems = made.problems();
  const Diagnostics bad_export = check_export(args);
  problems.insert(problems.end(), bad_export.begin(), bad_export.end());
  if (!problems.empty()) return fail(problems, args.output.json);
  SearchRequest& request = made.value();
  request.progress = progress_bar();
  request.stop = stop_on_signal();
  const Result<SearchResult> found = search(request);
  if (!found) return fail(of_command_line(found.problems()), args.output.json);
  const Json document =
      request.part.whole()
          ? search_json(found.value())
          : shard_json({"", request.part, request.top, question(app, request), found.value()});
  return answer(args, request, found.value(), document);
}

int run_merge(const SearchArgs& args, const CLI::App& app) {
  Diagnostics problems = check_export(args);
  for (const CLI::Option* option : flags_of_question(app)) {
    problems.push_back(
        usage(option->get_name(), "is not taken with --merge", "the parts hold the question"));
  }
  if (!args.words.shard.empty())
    problems.push_back(usage("--shard", "is not taken with --merge", "merge all parts"));
  std::vector<SearchShard> shards;
  for (const std::string& file : args.merge) {
    Result<SearchShard> shard = read_shard(file);
    problems.insert(problems.end(), shard.problems().begin(), shard.problems().end());
    if (shard) shards.push_back(shard.take());
  }
  if (!problems.empty()) return fail(problems, args.output.json);
  const Result<SearchResult> merged = merge(shards);
  if (!merged) return fail(merged.problems(), args.output.json);
  SearchRequest request;
  const Result<Run> base = run_from_json(shards.front().asked.value("run", Json()));
  if (!base) return fail(base.problems(), args.output.json);
  request.base = base.value();
  return answer(args, request, merged.value(), search_json(merged.value()));
}

}  // namespace

Command add_search(CLI::App& root) {
  const auto args = std::make_shared<SearchArgs>();
  SearchWords& words = args->words;
  CLI::App* app = root.add_subcommand("search",
                                      "Rank the layouts of a model on a cluster: needs --model "
                                      "--system --gpus --seq-length --global-batch-size; or "
                                      "--merge FILES");
  app->add_option("--top", words.top, "Layouts to rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app->add_option("--vary", words.vary, "Add or replace an axis; repeatable")
      ->type_name("KEY=V1,V2")
      ->allow_extra_args(false);
  app->add_option("--explain", words.explain,
                  "Say why this layout is not in the list: a run file, or tp=1,pp=4,... over the "
                  "searched run")
      ->type_name("LAYOUT");
  app->add_option("--shard", words.shard, "Search part i of n; -o FILE.json keeps it for --merge")
      ->type_name("I/N");
  app->add_option("--merge", args->merge, "Join the files of all parts into the whole answer")
      ->type_name("FILE...")
      ->expected(1, -1);
  app->add_option("--export", args->export_to,
                  "Write every ranked layout to a folder, as " +
                      fmt::format("{}", fmt::join(search_export_kinds(), ", ")))
      ->type_name("KIND DIR")
      ->expected(2);
  add_output_options(*app, args->output);
  add_search_flags(*app, words);
  return {app, {}, [args, app] {
            return args->merge.empty() ? run_search(*args, *app) : run_merge(*args, *app);
          }};
}

}  // namespace moecast::cli
