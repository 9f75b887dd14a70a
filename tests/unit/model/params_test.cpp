#include "model/params.hpp"

#include "helpers.hpp"

using namespace moecast;
using test::load;

namespace {

struct PublishedSize {
  const char* model;
  double total_b, active_b, without_embedding_b;  // 1e9 elements; 0 = not stated
};

// Counts made independently of this code, without q/k norms and MTP, each within rounding of the
// published size.
const PublishedSize kSizes[] = {
    {"deepseek-v3", 671.03, 37.55, 36.63},
    {"deepseek-v2", 235.74, 21.38, 20.85},
    {"deepseek-v2-lite", 15.71, 2.66, 2.45},
    {"deepseek-v4-flash", 283.8, 13.3, 0},
    {"deepseek-v4-pro", 1571.7, 48.5, 0},
    {"qwen3-30b-a3b", 30.53, 3.35, 3.04},
    {"qwen3-235b-a22b", 235.09, 22.19, 21.57},
    {"qwen3-coder-480b-a35b", 480.16, 35.48, 34.54},
    {"qwen3-next-80b-a3b", 79.67, 3.87, 3.56},
    {"qwen3.5-35b-a3b", 34.66, 3.45, 2.95},
    {"qwen3.5-122b-a10b", 122.11, 9.77, 9.01},
    {"qwen3.5-397b-a17b", 396.35, 17.35, 16.33},
    {"mixtral-8x7b", 46.70, 12.88, 12.75},
    {"mixtral-8x22b", 140.62, 39.15, 38.96},
    {"gpt-oss-20b", 20.91, 4.19, 3.61},
    {"gpt-oss-120b", 116.83, 5.71, 5.13},
    {"glm-4.5", 352.80, 33.63, 32.86},
    {"glm-4.7-flash-30b-a3b", 29.94, 3.90, 3.58},
    {"glm-5", 743.18, 41.05, 40.10},
    {"glm5-2", 743.18, 41.05, 40.10},
    {"kimi-k2", 1026.4, 32.86, 31.69},
    {"kimi-k2.5", 1026.4, 32.86, 31.69},
    {"minimax-m2.5", 228.69, 11.03, 10.42},
    {"llama4-scout", 107.77, 17.17, 16.14},
    {"llama4-maverick-400b", 400.71, 17.18, 16.15},
    {"ling-1t", 999.71, 51.05, 49.77},
    {"ling-plus", 290.60, 29.00, 28.32},
    {"olmoe-1b-7b", 6.92, 1.28, 1.18},
    {"grok1-314b", 315.68, 83.76, 82.95},
    {"nemotron-3-nano-30b-a3b", 31.58, 3.58, 3.23},
    {"nemotron-3-super-120b-a12b", 120.67, 12.77, 12.23},
    {"nemotron-3-ultra", 549.31, 56.06, 54.99},
    {"llama3.1-70b", 70.55, 70.55, 0},
    {"qwen3-32b", 32.76, 32.76, 0},
};

}  // namespace

TEST_CASE("shipped models have their published sizes") {
  for (const PublishedSize& size : kSizes) {
    const ParamCount count = count_params(load(size.model));
    INFO(size.model << " " << count.total / 1e9 << " " << count.active / 1e9 << " "
                    << count.active_without_input_embedding / 1e9);
    CHECK_THAT(count.total, WithinRel(size.total_b * 1e9, 0.005));
    CHECK_THAT(count.active, WithinRel(size.active_b * 1e9, 0.005));
    if (size.without_embedding_b > 0) {
      CHECK_THAT(count.active_without_input_embedding,
                 WithinRel(size.without_embedding_b * 1e9, 0.005));
    }
  }
}

TEST_CASE("counts equal what Megatron-Core allocated, to the element") {
  // params of the one rank of single-GPU runs (Megatron-Core d98e8a64, H200); vocabularies are
  // multiples of 128 but Qwen3's, which are multiples of 128 as well (151936 = 1187 * 128)
  const auto total = [](const char* name, const nlohmann::ordered_json& cut) {
    return static_cast<long long>(count_params(load(name, cut)).total);
  };
  CHECK(total("qwen3-30b-a3b", {{"num_hidden_layers", 4}}) == 3114814464);
  CHECK(total("qwen3-30b-a3b", {{"num_hidden_layers", 6}}) == 4361055744);
  CHECK(total("qwen3-30b-a3b", {{"num_hidden_layers", 8}}) == 5607297024);
  CHECK(total("qwen3-235b-a22b", {{"num_hidden_layers", 1}}) == 3732418816);
  CHECK(total("deepseek-v2-lite", {{"num_hidden_layers", 4}}) == 2254983168);
  CHECK(total("mixtral-8x7b", {{"num_hidden_layers", 2}}) == 3164688384);
  CHECK(total("llama3-8b", {{"num_hidden_layers", 4}}) == 1923125248);
  CHECK(total("llama3-8b", {{"num_hidden_layers", 8}}) == 2795573248);
  CHECK(total("deepseek-v3", {{"num_hidden_layers", 1},
                              {"n_routed_experts", 32},
                              {"first_k_dense_replace", 0},
                              {"num_nextn_predict_layers", 0}}) == 3494042624);
}

TEST_CASE(
    "tensor parallelism divides projections but not MLA down projections, routers and norms") {
  const ModelSpec m = load("deepseek-v3");
  const BlockParams p = mixer_params(m, m.mixers.at(1));
  CHECK(p.replicated == 7168.0 * 1536 + 1536 + 7168.0 * (512 + 64) + 512);
  CHECK(p.column_parallel == 1536.0 * 128 * 192 + 512.0 * 128 * 256);
  CHECK(p.row_parallel == 128.0 * 128 * 7168);
  CHECK(p.on_rank(2) == (p.column_parallel + p.row_parallel) / 2 + p.replicated);
  const MoeParams moe = moe_params(m);
  CHECK(moe.router == 7168.0 * 256);
  CHECK(moe.one_expert() == 3.0 * 7168 * 2048);
  CHECK(moe.shared.split() == 3.0 * 7168 * 2048);
}

TEST_CASE("latent experts work on the latent width") {
  const MoeParams moe = moe_params(load("nemotron-3-super-120b-a12b"));
  CHECK(moe.one_expert() == 2.0 * 1024 * 2688);
  CHECK(moe.latent == 2.0 * 4096 * 1024);
}

TEST_CASE("the indexer is known but not part of the published size") {
  const ModelSpec m = load("glm5-2");
  double indexer = 0;
  int fresh = 0;
  for (const LayerKind& layer : m.layers) {
    const Mixer& mixer = m.mixers.at(layer.mixer);
    indexer += mixer_params(m, mixer).indexer;
    fresh += mixer.index_fresh ? 1 : 0;
  }
  // the checkpoint's indexer_types: layers 1-3, then every fourth from 7 to 75
  CHECK(fresh == 21);
  CHECK(indexer == 21 * (2048.0 * 32 * 128 + 6144.0 * 32 + 6144.0 * 128 + 2 * 128));
}

TEST_CASE("MTP depths count apart, repeated ones once") {
  const ModelSpec v3 = load("deepseek-v3");
  const double layer = layer_params(v3, v3.layers.back()).total;
  CHECK(count_params(v3).mtp == layer + 2.0 * 7168 * 7168 + 3 * 7168);
  const ModelSpec super = load("nemotron-3-super-120b-a12b");
  CHECK(super.mtp_num_layers == 2);
  const ModelSpec once = load("nemotron-3-super-120b-a12b", {{"num_nextn_predict_layers", 1}});
  CHECK(count_params(super).mtp == count_params(once).mtp);
}

TEST_CASE(
    "for every shipped model active is at most total and cut layers take exactly their "
    "parameters") {
  for (const std::string& name : shipped_models()) {
    INFO(name);
    const ModelSpec m = load(name);
    const ParamCount all = count_params(m);
    CHECK(all.active <= all.total);
    CHECK(all.active_without_input_embedding < all.active);
    const int half = static_cast<int>(m.layers.size()) / 2;
    const ParamCount part = count_params(load(name, {{"num_hidden_layers", half}}));
    double gone = 0;
    for (std::size_t i = static_cast<std::size_t>(half); i < m.layers.size(); ++i) {
      gone += layer_params(m, m.layers[i]).total;
    }
    CHECK_THAT(all.total - part.total, WithinRel(gone, 1e-12));
  }
}

TEST_CASE("experts enter the total linearly and the active count only through the router") {
  const auto with = [](int experts) {
    return count_params(load("qwen3-30b-a3b", {{"num_experts", experts}}));
  };
  const double one = with(129).total - with(128).total;
  CHECK(one == 48.0 * (3.0 * 2048 * 768 + 2048));
  CHECK(with(256).total - with(128).total == 128 * one);
  CHECK(with(256).active - with(128).active == 48.0 * 2048 * 128);
}
