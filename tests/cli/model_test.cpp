// import, list and validate.
#include <algorithm>

#include "catch.hpp"
#include "cli/run_files.hpp"
#include "cli/run_moecast.hpp"
#include "temp_dir.hpp"

using namespace moecast::test;
using Json = nlohmann::json;

namespace {

/// Mixtral-8x7B-v0.1's config.json (huggingface.co/mistralai/Mixtral-8x7B-v0.1).
const std::string kMixtral = R"({
  "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096,
  "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
  "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
  "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "tie_word_embeddings": false, "vocab_size": 32000})";

}  // namespace

TEST_CASE("import counts Mixtral's published parameters") {
  const TempDir dir;
  const Outcome outcome = run({"import", dir.file("config.json", kMixtral), "--json"});
  REQUIRE(outcome.exit_code == 0);
  const Json d = outcome.json();
  CHECK(d.at("schema") == "moecast/model@1");
  CHECK(d.at("params").at("total") == 46702792704);  // sum of the checkpoint's tensors
  CHECK(d.at("layers").at("moe") == 32);
  CHECK(d.at("layers").at("dense") == 0);
}

TEST_CASE("FLOPs per token of an import grow with the sequence length") {
  const TempDir dir;
  const std::string file = dir.file("config.json", kMixtral);
  const auto flops = [&](const std::string& length) {
    return run({"import", file, "--json", "--seq-length", length})
        .json()
        .at("model_flops_per_token")
        .get<double>();
  };
  CHECK(run({"import", file, "--json"}).json().at("model_flops_per_token").get<double>() ==
        flops("4096"));
  // causal attention: 6 * 32 layers * hidden * L flops per token
  CHECK_THAT(flops("8192") - flops("4096"), WithinRel(6.0 * 32 * 4096 * 4096, 1e-9));
  CHECK(run({"import", file, "--seq-length", "0"}).exit_code == 2);
}

TEST_CASE(
    "an imported model file is a model: the run that names it gives the same forecast as the "
    "config") {
  const TempDir dir;
  const std::string config = dir.file("config.json", kMixtral),
                    model = (dir.path() / "model.yaml").string();
  const Outcome imported = run({"import", config, "-o", model});
  REQUIRE(imported.exit_code == 0);
  CHECK(read_file(model) == run({"import", config}).out);
  const std::string file = dir.file("run.yaml", kSmallRun);
  const auto step = [&](const std::string& name) {
    return run({"estimate", file, "--model", name, "--json"}).json().at("step_time_s");
  };
  CHECK(step(model) == step(config));
}

TEST_CASE("a file that is no model is refused with its place") {
  const TempDir dir;
  const Outcome outcome =
      run({"import", dir.file("config.json", "{\"architectures\": [\"NoSuchModel\"]}"), "--json"});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.json().at("schema") == "moecast/error@1");
  CHECK(run({"import", dir.file("broken.json", "{\"a\": ")}).exit_code == 2);
}

TEST_CASE("list names what ships") {
  for (const std::string topic : {"models", "systems", "rules", "dispatchers", "knobs", "stacks"}) {
    INFO(topic);
    const Outcome json = run({"list", topic, "--json"});
    CHECK(json.exit_code == 0);
    CHECK(json.json().at("schema") == "moecast/list@1");
    const std::size_t rows = json.json().at(topic).size();
    CHECK(rows > 0);
    const Outcome text = run({"list", topic});
    CHECK(static_cast<std::size_t>(std::count(text.out.begin(), text.out.end(), '\n')) == rows + 1);
  }
  const Json rule = run({"list", "rules", "--json"}).json().at("rules").at(0);
  for (const char* key : {"id", "severity", "condition", "source"})
    CHECK(!rule.at(key).get<std::string>().empty());
  CHECK(contains(run({"list", "systems"}).out, "gb200-nvl72"));
}

TEST_CASE("list prints the pages of rules and knobs, and refuses what it does not know") {
  CHECK(contains(run({"list", "rules", "--markdown"}).out, "# Rules"));
  CHECK(contains(run({"list", "knobs", "--markdown"}).out, "# Knobs"));
  CHECK(run({"list", "models", "--markdown"}).exit_code == 2);
  const Outcome outcome = run({"list", "modles"});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "did you mean 'models'?"));
}

TEST_CASE("validate forecasts measured rows, filters them, and judges by --max-mape") {
  const std::string rows = std::string(MOECAST_TEST_DIR) + "/unit/report/data/rows.csv";
  const Outcome json = run({"validate", rows, "--where", "model=qwen3-235b-a22b", "--json"});
  REQUIRE(json.exit_code == 0);
  const Json d = json.json();
  CHECK(d.at("schema") == "moecast/validate@1");
  REQUIRE(!d.at("rows").empty());
  for (const char* key :
       {"id", "predicted_tflops_per_gpu", "measured_tflops_per_gpu", "error_pct",
        "predicted_peak_gib", "measured_peak_gib", "memory_error_pct", "status", "detail"})
    CHECK(d.at("rows").at(0).contains(key));
  for (const char* key :
       {"n", "mape_pct", "median_ape_pct", "p90_ape_pct", "bias_pct", "spearman", "memory", "by"})
    CHECK(d.at("summary").contains(key));
  CHECK(
      run({"validate", rows, "--where", "model=qwen3-235b-a22b", "--max-mape", "1000"}).exit_code ==
      0);
  CHECK(run({"validate", rows, "--where", "model=qwen3-235b-a22b", "--max-mape", "0"}).exit_code ==
        1);
  CHECK(contains(run({"validate", rows, "--where", "model=qwen3-235b-a22b"}).out, "MAPE"));
  CHECK(run({"validate", rows, "--where", "modle=x"}).exit_code == 2);
  CHECK(run({"validate", "none.csv", "--json"}).exit_code == 2);
}
