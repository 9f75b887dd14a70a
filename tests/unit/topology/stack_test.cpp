#include "moecast/stack.hpp"

#include <algorithm>

#include "catch.hpp"
#include "temp_dir.hpp"

using namespace moecast;

TEST_CASE("every shipped stack loads, and every value of it has a source") {
  const auto names = shipped_stacks();
  for (const char* name : {"25.09", "25.11", "26.02", "26.04", "26.06", "26.08", "current",
                           "megatron-local-2026-08"}) {
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
  for (const auto& name : names) {
    CAPTURE(name);
    const auto match = load_stack(name);
    REQUIRE(match.ok());
    CHECK(match.value().exact);
    const Stack& stack = match.value().stack;
    CHECK(stack.name == name);
    for (const char* key : {"software", "fragmentation", "context_gib", "communicator_gib",
                            "host_factor", "memory_kernel_factor"}) {
      CAPTURE(key);
      CHECK(stack.sources.count(key) == 1);
    }
    for (const auto& [feature, on] : stack.software.features) {
      CAPTURE(feature);
      CHECK(stack.sources.count("features." + feature) == 1);
    }
  }
}

TEST_CASE("all shipped stacks know the same features") {
  const auto reference = load_stack("current").take().stack.software.features;
  CHECK(reference.size() >= 10);
  for (const auto& name : shipped_stacks()) {
    const auto features = load_stack(name).take().stack.software.features;
    CAPTURE(name);
    CHECK(features.size() == reference.size());
    for (const auto& [feature, on] : features) CHECK(reference.count(feature) == 1);
  }
}

TEST_CASE("a point release is its release, another name of the time only a guess") {
  const auto point = load_stack("26.06.01");
  REQUIRE(point.ok());
  CHECK(point.value().stack.name == "26.06");
  CHECK(point.value().exact);
  CHECK(point.value().stack.software.transformer_engine == "2.16");
  const auto alias = load_stack("v1.2 (torch 26.01, TE 2.11)");
  REQUIRE(alias.ok());
  CHECK(alias.value().stack.name == "26.02");
  CHECK_FALSE(alias.value().exact);
}

TEST_CASE("no name is the newest stack, an unknown name is answered with the nearest") {
  const auto open = load_stack("");
  REQUIRE(open.ok());
  CHECK(open.value().stack.software.bridge == "0.6.0");
  const auto wrong = load_stack("26.6");
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.problems().at(0).key == "software.container");
  CHECK(wrong.problems().at(0).hint.find("26.06") != std::string::npos);
  CHECK_FALSE(load_stack("no/such/stack.yaml").ok());
}

TEST_CASE("a stack lies over its base: permute fusion comes with 25.11 and stays") {
  CHECK_FALSE(load_stack("25.09").take().stack.software.features.at("permute_fusion"));
  CHECK(load_stack("25.11").take().stack.software.features.at("permute_fusion"));
  const auto newest = load_stack("26.08").take().stack;
  CHECK(newest.software.features.at("permute_fusion"));
  CHECK_FALSE(newest.software.features.at("fused_grouped_mlp"));
  CHECK_THAT(in_gib(newest.context), WithinRel(2.5, 1e-12));
  CHECK_THAT(newest.fragmentation, WithinRel(0.040, 1e-12));
  const auto local = load_stack("megatron-local-2026-08").take().stack;
  CHECK_FALSE(local.transformer_engine);
  CHECK_THAT(local.fragmentation, WithinRel(0.084, 1e-12));
  CHECK(local.software.features.at("grouped_mm"));
}

TEST_CASE("a stack file of the user's own takes a base, plain values and is read strictly") {
  const test::TempDir folder;
  const auto good = folder.file(
      "mine.yaml",
      "schema: moecast/stack@1\nname: mine\nbase: \"26.06\"\nfeatures: {cpu_binding: true}\n"
      "host_factor: 1.3\nenv: {CUDA_DEVICE_MAX_CONNECTIONS: 32}\n");
  const auto mine = load_stack(good);
  REQUIRE(mine.ok());
  CHECK(mine.value().stack.host_factor == 1.3);
  CHECK(mine.value().stack.software.features.at("cpu_binding"));
  CHECK(mine.value().stack.software.megatron_core == "0.18.0");
  CHECK(mine.value().stack.software.env.at("CUDA_DEVICE_MAX_CONNECTIONS") == "32");

  const auto bad = folder.file(
      "bad.yaml",
      "schema: moecast/stack@1\nname: bad\nfragmentation: -1\nfeatures: {cpu_binding: 1}\n"
      "contxt_gib: 2\naliases: x\n");
  const auto problems = load_stack(bad).problems();
  std::vector<std::string> keys;
  for (const auto& p : problems) keys.push_back(p.key);
  std::sort(keys.begin(), keys.end());
  CHECK(keys ==
        std::vector<std::string>{"aliases", "contxt_gib", "features.cpu_binding", "fragmentation"});

  const auto lost =
      folder.file("lost.yaml", "schema: moecast/stack@1\nname: lost\nbase: \"26.07\"\n");
  REQUIRE_FALSE(load_stack(lost).ok());
  CHECK(load_stack(lost).problems().at(0).line == 3);
}

TEST_CASE("is a row of a fit's correlation the same as a list and as a text, and strict in both?") {
  const test::TempDir folder;
  const auto fit_of = [&](const std::string& second) {
    return load_stack(folder.file(
        "mine.yaml",
        "schema: moecast/stack@1\nname: mine\nbase: \"26.04\"\nfit:\n  source: me\n  rows: 3\n"
        "  residual_sd: 0.1\n  half_width: 2\n  pair_sd: 0.1\n  domain: {}\n  factors:\n"
        "    - {scope: hopper, path: gemm.bf16.efficiency, log: 0.1, sd: 0.1}\n"
        "    - {scope: hopper, path: gemm.fp8.efficiency, log: 0.1, sd: 0.1}\n"
        "  correlation:\n    - \"1\"\n    - " +
            second + "\n"));
  };
  const auto list = fit_of("[-0.25, 1]"), text = fit_of("\"-0.25 1\"");
  REQUIRE(list.ok());
  REQUIRE(text.ok());
  CHECK(text.value().stack.fit.correlation[1] == std::vector<double>{-0.25, 1});
  CHECK(text.value().stack.fit.correlation == list.value().stack.fit.correlation);
  for (const char* wrong : {"\"-0.25\"", "\"-0.25 1 0\"", "\"-0.25 x\"", "\"-0.25,1\"", "\"2 1\"",
                            "\"nan 1\"", "\"\"", "[-0.25, x]", "{a: 1}"}) {
    INFO(wrong);
    CHECK_FALSE(fit_of(wrong).ok());
  }
}

TEST_CASE("a stack inherits the deviations of its base, and a deviation is of a known parameter") {
  const test::TempDir folder;
  const auto path =
      folder.file("mine.yaml",
                  "schema: moecast/stack@1\nname: mine\nbase: megatron-lm-2026-06\ndeviations:\n"
                  "  launch.sync_us: {sd: 0.2, source: \"our nodes\"}\n");
  const auto mine = load_stack(path);
  REQUIRE(mine.ok());
  const auto& deviations = mine.value().stack.deviations;
  REQUIRE(deviations.size() == 2);
  CHECK(deviations[0].scope == "megatron-lm");
  CHECK(deviations[1].scope == "stack mine");
  CHECK(deviations[1].sd == 0.2);

  const auto bad = load_stack(
      folder.file("bad.yaml",
                  "schema: moecast/stack@1\nname: bad\nbase: \"26.06\"\ndeviations:\n"
                  "  launch.host: {sd: 0.2, source: x}\n  launch.sync_us: {sd: 0, source: x}\n"));
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.problems().size() == 2);
  CHECK(bad.problems().at(0).line == 5);
}

TEST_CASE("complete_software fills what the run leaves open and keeps what it says") {
  const auto stack = load_stack("26.06").take().stack;
  Software asked;
  asked.transformer_engine = "2.12";
  asked.features["permute_fusion"] = false;
  asked.env["NCCL_DEBUG"] = "WARN";
  const Software full = complete_software(asked, stack);
  CHECK(full.container == "26.06");
  CHECK(full.transformer_engine == "2.12");
  CHECK(full.pytorch == "2.12");
  CHECK_FALSE(full.features.at("permute_fusion"));
  CHECK(full.features.at("router_fusion"));
  CHECK(full.env.at("NCCL_DEBUG") == "WARN");
}
