#include <set>

#include "catch.hpp"
#include "cli/run_files.hpp"
#include "cli/run_moecast.hpp"
#include "temp_dir.hpp"

using namespace moecast::test;
using Json = nlohmann::json;

TEST_CASE("check accepts a legal run") {
  const TempDir dir;
  const Outcome outcome = run({"check", dir.file("run.yaml", kSmallRun)});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "run.yaml: legal (0 errors"));
}

TEST_CASE("check names every broken rule, not the first, and exits 1") {
  const TempDir dir;
  const Outcome outcome =
      run({"check", dir.file("run.yaml", kSmallRun), "--ep", "3", "--pp", "3", "--json"});
  CHECK(outcome.exit_code == 1);
  const Json d = outcome.json();
  CHECK(d.at("schema") == "moecast/check@1");
  std::set<std::string> errors;
  for (const Json& finding : d.at("findings"))
    if (finding.at("severity") == "error") errors.insert(finding.at("rule").get<std::string>());
  CHECK(errors.count("WORLD-ATTENTION") == 1);    // 8 mod 3
  CHECK(errors.count("WORLD-EXPERT") == 1);       // 8 mod 9
  CHECK(errors.count("EXPERTS-DIVIDE-EP") == 1);  // 64 mod 3
}

TEST_CASE("check reads layout strings as Megatron does") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  const auto with = [&](const std::string& text) {
    return run({"check", file, "--pp", "2", "--ep", "4", "--pipeline-model-parallel-layout", text});
  };
  CHECK(with("Et*8|t*8L").exit_code == 0);
  const Outcome short_of_layers = with("Et*8|t*7L");
  CHECK(short_of_layers.exit_code == 1);
  CHECK(contains(short_of_layers.out, "PIPELINE-LAYOUT"));
}

TEST_CASE("a model or system that does not exist is bad input, at its line") {
  const TempDir dir;
  std::string text = kSmallRun;
  text.replace(text.find("olmoe-1b-7b"), 11, "olmoe-1b-7");
  const Outcome outcome = run({"check", dir.file("run.yaml", text), "--json"});
  CHECK(outcome.exit_code == 2);
  const Json error = outcome.json().at("errors").at(0);
  CHECK(error.at("line") == 3);
  CHECK(error.at("hint") == "did you mean 'olmoe-1b-7b'?");
}
