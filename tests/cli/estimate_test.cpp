#include "catch.hpp"
#include "cli/run_files.hpp"
#include "cli/run_moecast.hpp"
#include "temp_dir.hpp"

using namespace moecast::test;
using Json = nlohmann::json;

TEST_CASE("estimate prints one JSON document whose exposed parts add up to the step") {
  const TempDir dir;
  const Outcome outcome = run({"estimate", dir.file("run.yaml", kSmallRun), "--json"});
  REQUIRE(outcome.exit_code == 0);
  const Json d = outcome.json();
  CHECK(d.at("schema") == "moecast/estimate@1");
  double sum = 0;
  for (const char* part : {"compute_s", "ep_comm_exposed_s", "tp_comm_exposed_s",
                           "cp_comm_exposed_s", "pp_comm_exposed_s", "dp_comm_exposed_s",
                           "pipeline_bubble_s", "host_exposed_s", "optimizer_s"})
    sum += d.at("time").at(part).get<double>();
  const double step = d.at("step_time_s").get<double>();
  CHECK(step > 0);
  CHECK_THAT(sum, WithinRel(step, 1e-6));
  // tokens per second and GPU follow from the step: 64 x 4096 tokens on 8 GPUs
  CHECK_THAT(d.at("tokens_per_s_per_gpu").get<double>(), WithinRel(64.0 * 4096 / 8 / step, 1e-9));
  CHECK(d.at("memory").at("fits") == true);
  CHECK(d.at("run").at("layout").at("expert_model_parallel_size") == 8);
}

TEST_CASE("estimate prints a report for people") {
  const TempDir dir;
  const Outcome outcome = run({"estimate", dir.file("run.yaml", kSmallRun), "--memory-detail"});
  CHECK(outcome.exit_code == 0);
  for (const std::string part :
       {"Step time", "TFLOPS/GPU", "TP 1  PP 1", "Memory per GPU", "<- largest", "formula"}) {
    INFO(part);
    CHECK(contains(outcome.out, part));
  }
  CHECK_FALSE(contains(outcome.out, "\033"));
}

TEST_CASE("the same input gives the same bytes") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  CHECK(run({"estimate", file, "--json"}).out == run({"estimate", file, "--json"}).out);
}

TEST_CASE("a knob may be set by short flag, Megatron's flag or --set, and --set wins") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  const auto printed = [&](std::vector<std::string> more) {
    std::vector<std::string> args{"estimate", file, "--print-run", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return run(args).json();
  };
  const char* const ep = "expert_model_parallel_size";
  CHECK(printed({}).at("layout").at(ep) == 8);
  CHECK(printed({"--ep", "4"}).at("layout").at(ep) == 4);
  CHECK(printed({"--expert-model-parallel-size", "4"}).at("layout").at(ep) == 4);
  CHECK(printed({"--ep=4", "--set", "ep=2"}).at("layout").at(ep) == 2);
  CHECK(printed({"--mbs", "2"}).at("train").at("micro_batch_size") == 2);
  CHECK(printed({"--delay-wgrad-compute"}).at("moe").at("delay_wgrad_compute") == true);
  CHECK(printed({"--overlap-grad-reduce=false"}).at("comm").at("overlap_grad_reduce") == false);
  CHECK(printed({"--recompute-modules", "moe_act,layernorm"}).at("recompute").at("modules") ==
        Json::parse(R"(["moe_act","layernorm"])"));
}

TEST_CASE("a printed run is a run file that gives the same forecast") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  const Outcome printed = run({"estimate", file, "--print-run"});
  REQUIRE(printed.exit_code == 0);
  const std::string again = dir.file("again.yaml", printed.out);
  CHECK(run({"estimate", again, "--json"}).out == run({"estimate", file, "--json"}).out);
}

TEST_CASE("every problem of a bad run file is named with its line, and nothing is forecast") {
  const TempDir dir;
  const std::string file = dir.file("bad.yaml",
                                    "schema: moecast/run@1\n"
                                    "model: olmoe-1b-7b\n"
                                    "cluster: {system: dgx-h100, gpus: many}\n"
                                    "train: {seq_length: 4096, global_batch_size: 64}\n"
                                    "layout: {tensor_paralel_size: 2}\n");
  const Outcome text = run({"estimate", file});
  CHECK(text.exit_code == 2);
  CHECK(text.out.empty());
  CHECK(contains(text.err, "bad.yaml:3:"));
  CHECK(contains(text.err, "bad.yaml:5:"));
  CHECK(contains(text.err, "did you mean"));

  const Outcome json = run({"estimate", file, "--json"});
  CHECK(json.exit_code == 2);
  const Json errors = json.json();
  CHECK(errors.at("schema") == "moecast/error@1");
  REQUIRE(errors.at("errors").size() == 2);
  CHECK(errors.at("errors").at(0).at("line") == 3);
  CHECK(errors.at("errors").at(1).at("line") == 5);
  CHECK(errors.at("errors").at(1).at("key") == "layout.tensor_paralel_size");
}

TEST_CASE("an illegal layout exits 2 and points at the line that sets the knob") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  const Outcome outcome = run({"estimate", file, "--ep", "3", "--json"});
  CHECK(outcome.exit_code == 2);
  const Json errors = outcome.json().at("errors");
  bool found = false;
  for (const Json& error : errors) {
    if (!contains(error.at("message"), "[EXPERTS-DIVIDE-EP]")) continue;
    found = true;
    CHECK(error.at("line") == 6);
    CHECK(error.at("file") == file);
  }
  CHECK(found);
}

TEST_CASE("a legal layout that does not fit exits 1 with the full document") {
  const TempDir dir;
  const Outcome outcome =
      run({"estimate", dir.file("run.yaml", kSmallRun), "--model", "deepseek-v3", "--json"});
  CHECK(outcome.exit_code == 1);
  const Json d = outcome.json();
  CHECK(d.at("schema") == "moecast/estimate@1");
  CHECK(d.at("memory").at("fits") == false);
  CHECK(d.at("memory").at("peak_reserved_gib").get<double>() >
        d.at("memory").at("usable_gib").get<double>());
  CHECK(d.at("wall") == "memory");
}

TEST_CASE("unknown flags name the nearest, stray words and missing files are refused") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  const Outcome flag = run({"estimate", file, "--memory-detial"});
  CHECK(flag.exit_code == 2);
  CHECK(contains(flag.err, "--memory-detial: unknown option; did you mean '--memory-detail'?"));
  CHECK(run({"estimate", file, "more"}).exit_code == 2);
  const Outcome missing = run({"estimate", (dir.path() / "none.yaml").string(), "--json"});
  CHECK(missing.exit_code == 2);
  CHECK(contains(missing.json().at("errors").at(0).at("file"), "none.yaml"));
  const Outcome nothing = run({"estimate", "--json"});
  CHECK(nothing.exit_code == 2);
  CHECK(nothing.json().at("errors").at(0).at("key") == "RUN");
}

TEST_CASE("-o writes the document whole; into a missing folder it writes and prints no result") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  const std::string target = (dir.path() / "out.json").string();
  const Outcome written = run({"estimate", file, "--json", "-o", target});
  CHECK(written.exit_code == 0);
  CHECK(read_file(target) == written.out);
  const Outcome refused =
      run({"estimate", file, "--json", "-o", (dir.path() / "none" / "out.json").string()});
  CHECK(refused.exit_code == 2);
  CHECK(refused.json().at("schema") == "moecast/error@1");
}

TEST_CASE("--trace writes a trace whose boxes lie within the step") {
  const TempDir dir;
  const std::string target = (dir.path() / "trace.json").string();
  const Outcome outcome =
      run({"estimate", dir.file("run.yaml", kSmallRun), "--json", "--trace", target});
  REQUIRE(outcome.exit_code == 0);
  const double step_us = outcome.json().at("step_time_s").get<double>() * 1e6;
  int boxes = 0;
  double end = 0;
  const Json trace = Json::parse(read_file(target));
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++boxes;
    CHECK(event.at("ts").get<double>() >= 0);
    end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  CHECK(boxes > 0);
  CHECK(end <= step_us * (1 + 1e-6));
}
