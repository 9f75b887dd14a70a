#include "catch.hpp"
#include "cli/run_files.hpp"
#include "cli/run_moecast.hpp"

using moecast::test::contains;
using moecast::test::Outcome;
using moecast::test::run;

TEST_CASE("--help names the commands and what the program is for") {
  const Outcome outcome = run({"--help"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
  for (const std::string command : {"search", "estimate", "check", "list"}) {
    INFO(command);
    CHECK(contains(outcome.out, command));
  }
}

TEST_CASE("every command that --help lists explains itself") {
  for (const std::string command : {"search", "estimate", "check", "list"}) {
    INFO(command);
    const Outcome outcome = run({command, "--help"});
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.out, command));
  }
}

TEST_CASE("--version prints the program's name and version") {
  const Outcome outcome = run({"--version"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "moecast"));
  CHECK(contains(outcome.out, MOECAST_VERSION));
}

TEST_CASE("bad usage exits 2 and says on stderr what was wrong") {
  const std::vector<std::vector<std::string>> bad_usages = {
      {"estimat"}, {"--no-such-flag"}, {"search", "--no-such-flag"}, {"search", "--gpus", "many"}};
  for (const std::vector<std::string>& args : bad_usages) {
    INFO(args.back());
    const Outcome outcome = run(args);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out.empty());
    CHECK(contains(outcome.err, args.back()));
  }
}

TEST_CASE("no command at all is bad usage") { CHECK(run({}).exit_code == 2); }
