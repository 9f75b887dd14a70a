// import and export of Megatron's inputs, and search --export.
#include <filesystem>

#include "catch.hpp"
#include "cli/run_files.hpp"
#include "cli/run_moecast.hpp"
#include "temp_dir.hpp"

using namespace moecast::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::string kScript =
    "#!/bin/bash\nNNODES=${NNODES:-2}\nPARALLEL=\"--tensor-model-parallel-size 2 \\\n"
    "  --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --sequence-parallel\"\n"
    "torchrun --nnodes $NNODES --nproc-per-node 8 pretrain_gpt.py $PARALLEL \\\n"
    "  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\\n"
    "  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm \\\n"
    "  --disable-bias-linear --untie-embeddings-and-output-weights --num-experts 8 \\\n"
    "  --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 --lr 1e-4 \\\n"
    "  --use-distributed-optimizer --moe-token-dispatcher-type alltoall --moe-grouped-gemm \\\n"
    "  --moe-router-force-load-balancing --vocab-size 32000\n";

}  // namespace

TEST_CASE("an imported script is a run that estimate and check take") {
  const TempDir dir;
  const std::string run_file = (dir.path() / "run.yaml").string();
  const Outcome outcome =
      run({"import", dir.file("train.sh", kScript), "--system", "dgx-h100", "-o", run_file});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.out.empty());
  CHECK(run({"estimate", run_file, "--json"}).exit_code <= 1);
  const Json completed = run({"estimate", run_file, "--print-run", "--json"}).json();
  CHECK(completed.at("model") == "mixtral-8x7b");
  CHECK(completed.at("cluster").at("gpus") == 16);
  CHECK(completed.at("layout").at("expert_model_parallel_size") == 8);
}

TEST_CASE("an import without a system says what to add, and writes nothing") {
  const TempDir dir;
  const std::string run_file = (dir.path() / "run.yaml").string();
  const Outcome outcome = run({"import", dir.file("train.sh", kScript), "-o", run_file});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "--system NAME"));
  CHECK_FALSE(fs::exists(run_file));
  const Outcome json = run({"import", dir.file("train.sh", kScript), "--json"});
  CHECK(json.exit_code == 2);
  CHECK(json.json().at("schema") == "moecast/error@1");
}

TEST_CASE("a model that does not ship is written beside the run that names it") {
  const TempDir dir;
  std::string script = kScript;
  script.replace(script.find("14336"), 5, "12800");
  const std::string file = dir.file("train.sh", script),
                    run_file = (dir.path() / "run.yaml").string();
  CHECK(run({"import", file, "--system", "dgx-h100"}).exit_code == 2);
  const Outcome outcome = run({"import", file, "--system", "dgx-h100", "-o", run_file});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(read_file(dir.path() / "run-model.yaml"), "12800"));
  CHECK(run({"estimate", run_file, "--json"}).exit_code <= 1);
}

TEST_CASE("--var fills what a script leaves open, and --json tells what was not taken") {
  const TempDir dir;
  const std::string file =
      dir.file("over.txt",
               "model.tensor_model_parallel_size=$TP\nmodel.seq_length=4096\n"
               "train.global_batch_size=64\nmodel.tensor_model_paralel_size=2\n");
  const std::vector<std::string> base{"import",   file,     "--model", "mixtral-8x7b", "--system",
                                      "dgx-h100", "--gpus", "16",      "--json"};
  CHECK(contains(run(base).out, "--var TP=VALUE"));
  std::vector<std::string> with = base;
  with.insert(with.end(), {"--var", "TP=4"});
  const Json d = run(with).json();
  CHECK(d.at("schema") == "moecast/import@1");
  CHECK(d.at("kind") == "bridge");
  CHECK(d.at("run").at("layout").at("tensor_model_parallel_size") == 4);
  REQUIRE(d.at("warnings").size() == 1);
  CHECK(d.at("warnings").at(0).at("line") == 4);
}

TEST_CASE("every kind of export comes back as the same run") {
  const TempDir dir;
  const std::string file = dir.file("run.yaml", kSmallRun);
  const Json whole = run({"estimate", file, "--print-run", "--json"}).json();
  for (const std::string kind : {"megatron-lm", "bridge", "harness", "dry-run"}) {
    const std::string out = (dir.path() / (kind + ".sh")).string();
    const Outcome exported = run({"export", file, "--to", kind, "-o", out});
    INFO(kind << "\n" << exported.err);
    REQUIRE(exported.exit_code == 0);
    CHECK(exported.out == read_file(out));
    const Outcome back = run({"import", out, "--json"});
    INFO(back.err);
    REQUIRE(back.exit_code == 0);
    CHECK(back.json().at("run") == whole);
  }
  CHECK(contains(run({"export", file, "--to", "dry-run"}).out, "--fake-process-group"));
  CHECK(contains(run({"export", file, "--to", "bridg"}).err, "did you mean 'bridge'?"));
  CHECK(run({"export", file}).exit_code == 2);
}

TEST_CASE("search writes its ranked layouts as scripts that start them") {
  const TempDir dir;
  const fs::path out = dir.path() / "layouts";
  const std::vector<std::string> search{
      "search",       "--model", "mixtral-8x7b",        "--system", "dgx-h100", "--gpus", "16",
      "--seq-length", "4096",    "--global-batch-size", "64",       "--top",    "2",      "--json"};
  std::vector<std::string> with = search;
  with.insert(with.end(), {"--export", "megatron-lm", out.string()});
  const Outcome outcome = run(with);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const Json best = outcome.json().at("ranked").at(0).at("run");
  CHECK(fs::exists(out / "rank-02.sh"));
  const Outcome back = run({"import", (out / "rank-01.sh").string(), "--json"});
  REQUIRE(back.exit_code == 0);
  CHECK(back.json().at("run") == best);
  with = search;
  with.insert(with.end(), {"--export", "megatron", out.string()});
  CHECK(contains(run(with).out, "did you mean 'megatron-lm'?"));
}
