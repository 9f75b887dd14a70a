#include <filesystem>

#include "catch.hpp"
#include "cli/run_moecast.hpp"
#include "temp_dir.hpp"

using moecast::test::Outcome;
using moecast::test::run_program;
using moecast::test::RunOptions;
using moecast::test::TempDir;

TEST_CASE("an installed moecast reads the data that was installed with it") {
  const TempDir prefix;
  const Outcome installed = run_program(
      {MOECAST_CMAKE, "--install", MOECAST_BUILD_DIR, "--prefix", prefix.path().string()});
  INFO(installed.out << installed.err);
  REQUIRE(installed.exit_code == 0);

  const std::string program = (prefix.path() / "bin" / "moecast").string();
  const RunOptions options{prefix.path().string(), {"MOECAST_DATA="}};
  const Outcome all = run_program({program, "list", "models"}, options);
  REQUIRE(all.exit_code == 0);
  CHECK(all.out.find("deepseek-v3") != std::string::npos);
  CHECK(all.out.find("qwen3-30b-a3b") != std::string::npos);

  // Were it still reading the source tree, the model removed here would stay listed.
  const auto models = prefix.path() / "share" / "moecast" / "configs" / "models";
  REQUIRE(std::filesystem::remove(models / "qwen3-30b-a3b.yaml"));
  const Outcome fewer = run_program({program, "list", "models"}, options);
  CHECK(fewer.out.find("deepseek-v3") != std::string::npos);
  CHECK(fewer.out.find("qwen3-30b-a3b") == std::string::npos);
}
