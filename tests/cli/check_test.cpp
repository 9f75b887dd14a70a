#include <set>
#include <sstream>
#include <vector>

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

TEST_CASE("check --batch answers every line, also those that are no layout") {
  const TempDir dir;
  const std::string good =
      R"({"id":"a","knobs":{"world_size":8,"num_layers":4,"hidden_size":64,"num_attention_heads":4,)"
      R"("seq_length":128,"micro_batch_size":1,"global_batch_size":8,"bf16":true}})";
  const std::string bad =
      R"({"id":"b","knobs":{"world_size":8,"tensor_model_parallel_size":3,"seq_length":128}})";
  const std::string file = dir.file("lines.jsonl", good + "\n\nnot json\n" + bad + "\n");
  for (const std::string launcher : {"megatron-lm", "bridge"}) {
    const Outcome outcome = run({"check", "--batch", file, "--for", launcher});
    CHECK(outcome.exit_code == 0);
    std::vector<Json> lines;
    std::istringstream text(outcome.out);
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].at("verdict") == "accepted");
    CHECK(lines[1].at("verdict") == "unreadable");
    CHECK(lines[2].at("id") == "b");
    CHECK(lines[2].at("verdict") == "rejected");
    CHECK(contains(lines[2].at("rules").dump(), "WORLD-ATTENTION"));
  }
  CHECK(run({"check", "--batch", (dir.path() / "absent.jsonl").string()}).exit_code == 2);
  CHECK(run({"check", "--batch", file, "--for", "nemo"}).exit_code == 2);
}

TEST_CASE("check --error explains a message") {
  const Outcome outcome = run({"check", "--error", "assert expert_model_parallel_size > 1"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "EP-OVERLAP-EP"));
  CHECK(run({"check", "--error", "zzz"}).exit_code == 1);
}

TEST_CASE("check shows what the launcher changes and the stages of the pipeline") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  const Json d = run({"check", file, "--json"}).json();
  CHECK(d.at("for") == "bridge");
  CHECK(d.at("effective").contains("expert_model_parallel_size"));
  CHECK(run({"check", file, "--for", "megatron-lm", "--json"}).json().at("for") == "megatron-lm");
}

TEST_CASE("check reads what Megatron is launched with") {
  const TempDir dir;
  const std::string script = dir.file(
      "train.sh",
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 "
      "--num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 "
      "--micro-batch-size 1 --global-batch-size 8 --bf16 --pipeline-model-parallel-size 3\n");
  const Outcome outcome = run({"check", script, "--json"});
  CHECK(outcome.exit_code == 1);
  const Json d = outcome.json();
  CHECK(d.at("for") == "megatron-lm");
  CHECK(contains(d.at("findings").dump(), "EVEN-SPLIT"));
  CHECK(run({"check", script, "--tp", "2"}).exit_code == 2);  // knobs belong to run files
}
