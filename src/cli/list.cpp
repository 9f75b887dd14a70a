#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.hpp"
#include "core/document.hpp"
#include "report/lists.hpp"

namespace moecast::cli {
namespace {

struct ListArgs {
  std::string topic;
  Output output;
  bool markdown = false;
};

int run_list(const ListArgs& args) {
  const std::vector<std::string> topics = list_topics();
  const bool known = std::find(topics.begin(), topics.end(), args.topic) != topics.end();
  if (!known) {
    return fail({usage(args.topic, "cannot be listed", suggestion(args.topic, topics))},
                args.output.json);
  }
  const std::string page = args.markdown ? topic_markdown(args.topic) : "";
  if (args.markdown && page.empty()) {
    return fail(
        {usage("--markdown", "there is no page of " + args.topic, "rules and knobs have one")},
        args.output.json);
  }
  const Listing listing = make_listing(args.topic);
  if (!listing.problems.empty()) return fail(listing.problems, args.output.json);
  return deliver(args.output, kSuccess, listing_json(listing), [&](const Style& style) {
    return args.markdown ? page : listing_text(listing, style);
  });
}

}  // namespace

Command add_list(CLI::App& root) {
  const auto args = std::make_shared<ListArgs>();
  CLI::App* app = root.add_subcommand("list", "What ships with the tool");
  CLI::Option* topic =
      app->add_option("TOPIC", args->topic, fmt::format("{}", fmt::join(list_topics(), ", ")))
          ->type_name("TOPIC");
  app->add_flag("--markdown", args->markdown, "Print docs/rules.md or docs/knobs.md");
  add_output_options(*app, args->output);
  return {app, {topic}, [args] { return run_list(*args); }};
}

}  // namespace moecast::cli
