#include <algorithm>

#include "helpers.hpp"

using namespace moecast;
using test::all;
using test::import_text;

namespace {

/// The problem about `key`, or nullptr.
const Diagnostic* about(const Diagnostics& problems, const std::string& key) {
  const auto at = std::find_if(problems.begin(), problems.end(),
                               [&](const Diagnostic& d) { return d.key == key; });
  return at == problems.end() ? nullptr : &*at;
}

const char* kGood[][2] = {
    {"\"hidden_size\"", "64"},         {"\"num_hidden_layers\"", "4"},
    {"\"num_attention_heads\"", "4"},  {"\"num_key_value_heads\"", "2"},
    {"\"vocab_size\"", "512"},         {"\"intermediate_size\"", "96"},
    {"\"num_local_experts\"", "8"},    {"\"num_experts_per_tok\"", "2"},
    {"\"model_type\"", "\"mixtral\""},
};

/// The good config with one value replaced (or, if empty, left out), and `extra` keys.
std::string with(const std::string& key, const std::string& value, const std::string& extra = "") {
  std::string text = "{";
  for (const auto& [k, v] : kGood) {
    const std::string use = k == "\"" + key + "\"" ? value : v;
    if (!use.empty()) text += (text.size() > 1 ? ",\n " : "\n ") + std::string(k) + ": " + use;
  }
  return text + (extra.empty() ? "" : ",\n " + extra) + "\n}";
}

}  // namespace

TEST_CASE("the base config of these tests is good") { CHECK(import_text(with("", "")).ok()); }

TEST_CASE("every missing required key is named, all at once") {
  const Result<ModelSpec> r = import_text(R"({"model_type": "mixtral", "num_local_experts": 8})");
  REQUIRE_FALSE(r.ok());
  for (const char* key : {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "num_experts_per_tok", "intermediate_size"}) {
    INFO(key << "\n" << all(r.problems()));
    CHECK(about(r.problems(), key) != nullptr);
  }
}

TEST_CASE("a wrong value is a problem at its place") {
  const struct {
    const char *key, *value;
  } cases[] = {{"hidden_size", "\"64\""},
               {"hidden_size", "-64"},
               {"hidden_size", "0"},
               {"hidden_size", "64.5"},
               {"hidden_size", "1e99"},
               {"hidden_size", "99999999999999999999"},
               {"num_hidden_layers", "100000"},
               {"num_hidden_layers", "true"},
               {"num_hidden_layers", "{}"},
               {"num_key_value_heads", "3"},
               {"num_attention_heads", "[]"},
               {"vocab_size", "[1, 2]"},
               {"num_experts_per_tok", "9"},
               {"num_experts_per_tok", "0"},
               {"num_local_experts", "0"}};
  for (const auto& c : cases) {
    const Result<ModelSpec> r = import_text(with(c.key, c.value));
    INFO(c.key << " = " << c.value << "\n" << all(r.problems()));
    REQUIRE_FALSE(r.ok());
    const Diagnostic* d = about(r.problems(), c.key);
    REQUIRE(d != nullptr);
    CHECK(d->file == "config.json");
    CHECK(d->line >= 2);
    CHECK(d->column > 1);
  }
}

TEST_CASE("contradictions between keys are problems") {
  const std::pair<const char*, const char*> cases[] = {
      {"layer_types", "\"layer_types\": [\"full_attention\", \"full_attention\"]"},
      {"layer_types",
       "\"layer_types\": [\"full_attention\", \"odd\", \"full_attention\", \"full_attention\"]"},
      {"moe_layer_freq", "\"moe_layer_freq\": [0, 1, 1]"},
      {"mlp_layer_types", "\"mlp_layer_types\": [\"dense\"]"},
      {"first_k_dense_replace",
       "\"first_k_dense_replace\": 2, \"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\", "
       "\"sparse\"]"},
      {"n_group", "\"n_group\": 3, \"topk_group\": 1"},
      {"topk_group", "\"n_group\": 2, \"topk_group\": 4"},
      {"linear_num_key_heads",
       "\"full_attention_interval\": 4, \"linear_num_key_heads\": 3, \"linear_num_value_heads\": "
       "4, "
       "\"linear_key_head_dim\": 8, \"linear_value_head_dim\": 8, \"linear_conv_kernel_dim\": 4"},
  };
  for (const auto& [key, extra] : cases) {
    const Result<ModelSpec> r = import_text(with("", "", extra));
    INFO(extra << "\n" << all(r.problems()));
    REQUIRE_FALSE(r.ok());
    CHECK(about(r.problems(), key) != nullptr);
  }
}

TEST_CASE("several problems come together") {
  const Result<ModelSpec> r =
      import_text(with("hidden_size", "-1", "\"moe_layer_freq\": [1], \"head_dim\": \"x\""));
  REQUIRE_FALSE(r.ok());
  CHECK(r.problems().size() >= 3);
}

TEST_CASE("a config of another shape never throws") {
  for (const char* text :
       {"[]", "{}", "{\"text_config\": []}", "{\"text_config\": {}}", "[1, 2]",
        "{\"architectures\": 3, \"model_type\": []}", "{\"layers_block_type\": [[], {}]}",
        "{\"hybrid_override_pattern\": [1]}", "{\"linear_attn_config\": {\"kda_layers\": 3}}",
        "{\"compress_ratios\": {}}", "{\"compress_ratios\": []}", "{\"moe_layers_enum\": \"a\"}",
        "{\"linear_attn_config\": {\"kda_layers\": [\"a\", -5, 99999999999999999999]}}"}) {
    INFO(text);
    CHECK_FALSE(import_text(text).ok());
  }
}

TEST_CASE("an unknown model name suggests the nearest shipped one") {
  const Result<ModelSpec> r = load_model("qwen3-30b-a3", {}, "");
  REQUIRE_FALSE(r.ok());
  CHECK(r.problems().at(0).hint.find("qwen3-30b-a3b") != std::string::npos);
  CHECK_FALSE(load_model("", {}, "").ok());
  CHECK_FALSE(load_model("/", {}, "").ok());
}
