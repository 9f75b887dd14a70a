#include "helpers.hpp"

using namespace moecast;
using test::all;
using test::load;

TEST_CASE("one override name reaches every alias a model's own config uses") {
  // n_routed_experts in DeepSeek, num_experts in Qwen (nested in text_config for 3.5),
  // num_local_experts in Mixtral and GPT-OSS
  for (const char* model :
       {"deepseek-v3", "qwen3-30b-a3b", "qwen3.5-35b-a3b", "mixtral-8x7b", "gpt-oss-120b"}) {
    for (const char* key : {"n_routed_experts", "num_experts", "num_local_experts"}) {
      INFO(model << " " << key);
      CHECK(load(model, {{key, 64}}).moe.num_moe_experts == 64);
    }
  }
}

TEST_CASE("cutting layers keeps the front of every per-layer list and the MTP layers") {
  const ModelSpec v4 = load("deepseek-v4-flash", {{"num_hidden_layers", 4}});
  REQUIRE(v4.layers.size() == 4);
  const auto ratio = [&](const LayerKind& l) { return v4.mixers.at(l.mixer).compress_ratio; };
  CHECK(ratio(v4.layers[0]) == 0);
  CHECK(ratio(v4.layers[2]) == 4);
  CHECK(ratio(v4.layers[3]) == 128);
  CHECK(ratio(v4.mtp_pattern.at(0)) == 0);
  const ModelSpec nano = load("nemotron-3-nano-30b-a3b", {{"num_hidden_layers", 6}});  // MEMEM*
  REQUIRE(nano.layers.size() == 6);
  CHECK(nano.mixers.at(nano.layers[5].mixer).kind == MixerKind::gqa);
  CHECK(load("nemotron-3-ultra", {{"num_hidden_layers", 10}}).layers.size() == 10);
  CHECK(load("gpt-oss-120b", {{"num_hidden_layers", 3}}).layers.size() == 3);
}

TEST_CASE("overrides of the training runs are understood") {
  const ModelSpec m = load("deepseek-v3", {{"num_hidden_layers", 1},
                                           {"n_routed_experts", 32},
                                           {"first_k_dense_replace", 0},
                                           {"num_nextn_predict_layers", 0}});
  CHECK(m.layers.size() == 1);
  CHECK(m.layers[0].ffn == FfnKind::moe);
  CHECK(m.moe.num_moe_experts == 32);
  CHECK(m.mtp_num_layers == 0);
  CHECK(m.mtp_pattern.empty());
}

TEST_CASE("an override that is unknown, idle or out of range is a problem that names it") {
  const auto refused = [](const char* model, const nlohmann::ordered_json& overrides) {
    const Result<ModelSpec> r = load_model(model, overrides, "");
    INFO(overrides.dump());
    REQUIRE_FALSE(r.ok());
    return all(r.problems());
  };
  CHECK(refused("qwen3-30b-a3b", {{"num_hiden_layers", 4}}).find("num_hidden_layers") !=
        std::string::npos);
  CHECK(refused("llama3-8b", {{"moe_latent_size", 64}}).find("has no effect") != std::string::npos);
  CHECK(refused("qwen3-30b-a3b", {{"num_hidden_layers", -1}}).find("num_hidden_layers") !=
        std::string::npos);
  CHECK(refused("qwen3-30b-a3b", {{"num_experts", "many"}}).find("num_experts") !=
        std::string::npos);
  CHECK(refused("deepseek-v3", {{"n_routed_experts", 4}}).find("num_experts_per_tok") !=
        std::string::npos);
  CHECK(refused("gpt-oss-120b", {{"num_hidden_layers", 40}}).find("layer_types") !=
        std::string::npos);
  CHECK_FALSE(load_model("qwen3-30b-a3b", nlohmann::ordered_json::array({1}), "").ok());
}
