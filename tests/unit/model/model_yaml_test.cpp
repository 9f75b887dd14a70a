#include "model/model_yaml.hpp"

#include "helpers.hpp"

using namespace moecast;
using test::all;
using test::load;

namespace {

Result<ModelSpec> read(const std::string& text,
                       const nlohmann::ordered_json& overrides = nlohmann::ordered_json::object()) {
  Result<Document> doc = parse_document(text, "model.yaml");
  INFO(text << all(doc.problems()));
  REQUIRE(doc.ok());
  return read_model_yaml(doc.take(), overrides);
}

const std::string kTiny = R"(schema: moecast/model@1
name: tiny
hidden_size: 64
ffn_hidden_size: 96
vocab_size: 512
moe: {num_moe_experts: 8, moe_router_topk: 2, moe_ffn_hidden_size: 32}
mixers:
  full: {kind: gqa, num_attention_heads: 4, num_query_groups: 2, qk_head_dim: 16, v_head_dim: 16}
layers: [full+dense, 2 x full+moe full+dense]
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("every shipped model survives being written and read again") {
  for (const std::string& name : shipped_models()) {
    const ModelSpec m = load(name);
    const nlohmann::ordered_json json = model_to_json(m);
    const Result<ModelSpec> back = read(to_yaml(json));
    INFO(name << "\n" << to_yaml(json) << all(back.problems()));
    REQUIRE(back.ok());
    CHECK(model_to_json(back.value()) == json);
    CHECK(back.value().layers == m.layers);
    CHECK(back.value().mixers == m.mixers);
    CHECK(back.value().mtp_pattern == m.mtp_pattern);
    CHECK(back.value().warnings == m.warnings);
    CHECK(count_params(back.value()).total == count_params(m).total);
    CHECK(count_params(back.value()).mtp == count_params(m).mtp);
    CHECK(model_flops_per_token(back.value(), 4096, 2) == model_flops_per_token(m, 4096, 2));
  }
}

TEST_CASE("a model in Megatron's terms is read") {
  const Result<ModelSpec> r = read(kTiny);
  INFO(all(r.problems()));
  REQUIRE(r.ok());
  const ModelSpec& m = r.value();
  REQUIRE(m.layers.size() == 5);
  CHECK(m.layers[0].ffn == FfnKind::dense);
  CHECK(m.layers[1].ffn == FfnKind::moe);
  CHECK(m.layers[4].ffn == FfnKind::dense);
  // by hand: attention 64*(4+2*2)*16 + 4*16*64, norms 2*64; dense 3*64*96; moe 8*3*64*32 + 64*8;
  // ends 2*512*64 + 64
  CHECK(count_params(m).total ==
        5 * (8192.0 + 4096 + 128) + 3 * 18432.0 + 2 * (49152.0 + 512) + 65536.0 + 64);
}

TEST_CASE("layer runs compress repeated periods and nothing else") {
  using Words = std::vector<std::string>;
  CHECK(layer_runs({"a", "a", "a", "b"}) == Words{"3 x a", "1 x b"});
  CHECK(layer_runs({"a", "b", "a", "b", "a"}) == Words{"2 x a b", "1 x a"});
  CHECK(layer_runs({}) == Words{});
}

TEST_CASE("a shape in Megatron's terms takes overrides by HF name") {
  const auto with = [](const nlohmann::ordered_json& overrides) {
    Result<ModelSpec> r = read(kTiny, overrides);
    INFO(all(r.problems()));
    REQUIRE(r.ok());
    return r.take();
  };
  CHECK(with({{"num_hidden_layers", 2}}).layers.size() == 2);
  CHECK(with({{"num_experts", 16}}).moe.num_moe_experts == 16);
  CHECK(with({{"num_key_value_heads", 4}}).mixers.at(1).num_query_groups == 4);
  CHECK(with({{"first_k_dense_replace", 3}}).layers[2].ffn == FfnKind::dense);
  CHECK(with({{"num_nextn_predict_layers", 1}}).mtp_pattern.size() == 1);
  CHECK_FALSE(read(kTiny, {{"num_hidden_layers", 9}}).ok());
  CHECK_FALSE(read(kTiny, {{"num_experts", 1}}).ok());
  CHECK_FALSE(read(kTiny, {{"kv_lora_rank", 8}}).ok());
  CHECK_FALSE(read(kTiny, {{"nun_experts", 8}}).ok());
}

TEST_CASE("what is wrong in a model YAML is said at its place") {
  const auto problem = [](const std::string& text, const std::string& words) {
    const Result<ModelSpec> r = read(text);
    INFO(text << all(r.problems()));
    REQUIRE_FALSE(r.ok());
    CHECK(all(r.problems()).find(words) != std::string::npos);
    CHECK(all(r.problems()).find("model.yaml:") == 0);
  };
  problem(replaced(kTiny, "hidden_size", "hiden_size"), "hidden_size");
  problem(replaced(kTiny, "2 x full+moe", "2 x fulll+moe"), "did you mean");
  problem(replaced(kTiny, "2 x full+moe", "-2 x full+moe"), "number of layers");
  problem(replaced(kTiny, "2 x full+moe", "99999999 x full+moe"), "layers");
  problem(replaced(kTiny, "num_query_groups: 2", "num_query_groups: 3"), "does not divide");
  problem(replaced(kTiny, "kind: gqa", "kind: gqaa"), "did you mean");
  problem(replaced(kTiny, "num_moe_experts: 8", "num_moe_experts: 1"), "experts");
  problem(replaced(kTiny, "qk_head_dim: 16, ", ""), "qk_head_dim");
  problem(replaced(kTiny, "model@1", "model@9"), "schema");
  problem(replaced(kTiny, "mixers:", "hf_config:"), "hf_config");
}
