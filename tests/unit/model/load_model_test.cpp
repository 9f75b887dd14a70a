#include <algorithm>

#include "helpers.hpp"

using namespace moecast;
using test::load;

TEST_CASE("a config.json is found from the base folder and named by its folder") {
  const ModelSpec m = load("tiny-hunyuan/config.json");
  CHECK(m.name == "tiny-hunyuan");
  CHECK(m.architecture == "HunYuanMoEV1ForCausalLM");
  CHECK(m.moe.moe_router_topk == 2);
  CHECK(m.moe.moe_ffn_hidden_size == 32);
  CHECK(m.moe.moe_shared_expert_intermediate_size == 32);
  // per-layer lists follow when layers are cut
  CHECK(load("tiny-hunyuan/config.json", {{"num_hidden_layers", 2}}).layers.size() == 2);
}

TEST_CASE("ERNIE counts its MoE layers from start to end") {
  const ModelSpec m = load("tiny-ernie.json");
  CHECK(m.name == "tiny-ernie");
  const auto moe = std::count_if(m.layers.begin(), m.layers.end(),
                                 [](const LayerKind& l) { return l.ffn == FfnKind::moe; });
  CHECK(moe == 3);
  CHECK(m.layers[0].ffn == FfnKind::dense);
  CHECK_FALSE(m.untie_embeddings_and_output_weights);
}

TEST_CASE("shipped models are sorted, and each names itself") {
  const std::vector<std::string> names = shipped_models();
  CHECK(names.size() >= 45);
  CHECK(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) CHECK(load(name).name == name);
}
