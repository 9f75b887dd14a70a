#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/command.hpp"
#include "cli/long_run.hpp"
#include "cli/search_flags.hpp"
#include "layout/run_file.hpp"
#include "report/whatif_report.hpp"

namespace moecast::cli {
namespace {

struct WhatIfArgs {
  std::string run;
  SearchWords words;
  std::vector<std::string> vary, prices;
  double tokens = 0;
  std::optional<double> days;
  bool keep_layout = false;
  Output output;
};

void append(Diagnostics& all, const Diagnostics& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// key=v1,v2 of every --vary; the keys and values are checked where they are used.
std::vector<WhatIfAxis> axes_of(const std::vector<std::string>& words, Diagnostics& problems) {
  std::vector<WhatIfAxis> axes;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const bool again = std::any_of(axes.begin(), axes.end(),
                                   [&](const WhatIfAxis& axis) { return axis.key == key; });
    if (equals == std::string::npos || equals == 0) {
      problems.push_back({"--vary", 0, 0, word, "is not key=v1,v2", "write cluster.gpus=256,512"});
    } else if (again) {
      problems.push_back({"--vary", 0, 0, key, "is given twice", "list all values in one --vary"});
    } else {
      axes.push_back({key, split_values(word.substr(equals + 1))});
    }
  }
  return axes;
}

/// "2.5", or "system=2.5" for one system.
std::map<std::string, double> prices_of(const std::vector<std::string>& words,
                                        Diagnostics& problems) {
  std::map<std::string, double> prices;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string number = equals == std::string::npos ? word : word.substr(equals + 1);
    char* end = nullptr;
    const double price = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || !std::isfinite(price) || price < 0) {
      problems.push_back({"--price-per-gpu-hour", 0, 0, word, "is not a price",
                          "write 2.5, or dgx-h100=2.5 for one system"});
    } else {
      prices[equals == std::string::npos ? "" : word.substr(0, equals)] = price;
    }
  }
  return prices;
}

std::vector<std::string> varied_keys(const std::vector<WhatIfAxis>& axes) {
  std::vector<std::string> keys;
  for (const WhatIfAxis& axis : axes) keys.push_back(axis.key);
  return keys;
}

/// What the flags ask of every layout holds for the start's, too.
void constrain(Run& start, const SearchWords& words, const SearchRequest& base) {
  for (const std::string& fixed : words.fix) apply_set(start, fixed);
  const auto& allowed = base.precisions;
  if (std::find(allowed.begin(), allowed.end(), start.layout.precision) == allowed.end())
    start.layout.precision = allowed.front();
}

Result<WhatIfRequest> request_of(const WhatIfArgs& args) {
  WhatIfRequest r;
  Diagnostics problems;
  if (!args.run.empty()) {
    Result<Run> start = read_run(args.run, args.words.sets);
    if (!start) return start.problems();
    r.start = start.take();
  } else if (args.keep_layout) {
    problems.push_back(
        usage("--keep-layout", "needs a RUN whose layout is kept", "name a run file"));
  }
  r.keep_layout = args.keep_layout;
  r.tokens = args.tokens;
  r.days = args.days;
  r.axes = axes_of(args.vary, problems);
  r.prices = prices_of(args.prices, problems);
  Result<SearchRequest> base = make_search_request(args.words, r.start, varied_keys(r.axes));
  append(problems, base.problems());
  if (!problems.empty()) return problems;
  r.base = base.take();
  r.base.top = 1;
  if (r.start) constrain(*r.start, args.words, r.base);
  return r;
}

bool is_csv(const std::string& file) { return file.ends_with(".csv"); }

int run_whatif(const WhatIfArgs& args) {
  Result<WhatIfRequest> made = request_of(args);
  if (!made) return fail(made.problems(), args.output.json);
  WhatIfRequest& request = made.value();
  request.base.progress = progress_bar();
  request.base.stop = stop_on_signal();
  const Result<WhatIfResult> found = whatif(request);
  if (!found) return fail(found.problems(), args.output.json);
  const WhatIfResult& result = found.value();
  Output output = args.output;
  if (is_csv(output.file)) {
    const Diagnostics problems = write_file(output.file, whatif_csv(request, result));
    if (!problems.empty()) return fail(problems, output.json);
    output.file.clear();
  }
  const bool positive = result.complete() && result.reference && (!request.days || result.answer);
  return deliver(output, positive ? kSuccess : kNegative, whatif_json(request, result),
                 [&](const Style& style) { return whatif_text(request, result, style); });
}

}  // namespace

Command add_whatif(CLI::App& root) {
  const auto args = std::make_shared<WhatIfArgs>();
  CLI::App* app = root.add_subcommand(
      "whatif",
      "Sweep run keys over lists and plan capacity: the best layout of every point, and the days, "
      "GPU-hours and cost of a token budget");
  app->add_option("RUN", args->run, "Run file to start from, instead of --model --system ...")
      ->type_name("FILE");
  CLI::Option* vary =
      app->add_option("--vary", args->vary,
                      "Points: every combination of the lists, over any run key (cluster.gpus, "
                      "precision, model_overrides.X, ...) or figure of the system (system.X, a "
                      "number or xFACTOR); repeatable")
          ->type_name("KEY=V1,V2")
          ->allow_extra_args(false);
  CLI::Option* tokens = app->add_option("--tokens", args->tokens, "Budget to train, such as 15e12")
                            ->type_name("N")
                            ->check(CLI::PositiveNumber);
  app->add_option("--price-per-gpu-hour", args->prices,
                  "Price, of all systems or of one (dgx-h100=2.5); repeatable")
      ->type_name("[SYSTEM=]PRICE")
      ->allow_extra_args(false);
  app->add_option("--days", args->days, "Find the fewest GPUs that need at most so many days")
      ->type_name("D")
      ->check(CLI::PositiveNumber);
  app->add_flag("--keep-layout", args->keep_layout,
                "Keep the layout of RUN at every point: only data parallelism grows");
  add_output_options(*app, args->output);
  add_search_flags(*app, args->words);
  return {app, {vary, tokens}, [args] { return run_whatif(*args); }};
}

}  // namespace moecast::cli
