#include "model/flops.hpp"

#include "helpers.hpp"

using namespace moecast;
using test::load;

namespace {

double gflops(const std::string& name, int seq,
              const nlohmann::ordered_json& overrides = nlohmann::ordered_json::object(),
              int tp = 1) {
  return model_flops_per_token(load(name, overrides), seq, tp) / 1e9;
}

}  // namespace

TEST_CASE("model FLOPs per token are Megatron-Bridge's to the printed digits") {
  CHECK_THAT(gflops("qwen3-30b-a3b", 4096), WithinAbs(23.01, 0.005));
  CHECK_THAT(gflops("qwen3-235b-a22b", 4096), WithinAbs(148.03, 0.005));
  CHECK_THAT(gflops("deepseek-v3", 4096), WithinAbs(259.99, 0.005));
  CHECK_THAT(gflops("deepseek-v3", 4096, {{"num_nextn_predict_layers", 0}}),
             WithinAbs(249.81, 0.005));
  CHECK_THAT(gflops("gpt-oss-120b", 4096), WithinAbs(32.630, 0.0005));
  CHECK_THAT(gflops("moonlight-16b-a3b", 4096), WithinAbs(17.15, 0.005));
}

TEST_CASE("published TFLOP/s of Qwen3-30B follow from its step times") {
  // 16 GPUs, global batch 1024, 4096 tokens; Bridge's skill moe-comm-overlap prints 299.352 for the
  // first
  const double flops = gflops("qwen3-30b-a3b", 4096) * 1e9 * 1024 * 4096;
  CHECK_THAT(flops / (20.14729 * 16 * 1e12), WithinAbs(299.343, 0.0005));
  CHECK_THAT(flops / (24.7138 * 16 * 1e12), WithinAbs(244.032, 0.0005));
  CHECK_THAT(flops / (20.9920 * 16 * 1e12), WithinAbs(287.298, 0.0005));
}

TEST_CASE(
    "FLOPs agree with verification cards and performance tables that give step time and TFLOP/s") {
  // Megatron-Bridge examples/model_verification_cards and docs/performance-summary.md: TFLOP/s *
  // GPU seconds / tokens
  CHECK_THAT(gflops("deepseek-v4-flash", 4096), WithinRel(90.7844, 1e-4));
  CHECK_THAT(gflops("qwen3-8b", 4096), WithinRel(49.0324, 1e-4));
  CHECK_THAT(gflops("qwen3.5-35b-a3b", 4096), WithinRel(22.4705, 1e-4));
  CHECK_THAT(gflops("glm5-2", 4096), WithinRel(304.0430, 1e-4));
  CHECK_THAT(gflops("nemotron-3-nano-30b-a3b", 8192), WithinRel(22.27794, 1e-4));
  CHECK_THAT(gflops("nemotron-3.5-lightning", 8192), WithinRel(28.14671, 1e-4));
  CHECK_THAT(gflops("nemotron-3-super-120b-a12b", 8192, {}, 2), WithinRel(84.72749, 1e-4));
  CHECK_THAT(gflops("nemotron-3-super-120b-a12b", 4096), WithinRel(83.72554, 1e-4));
  // rounded step times
  CHECK_THAT(gflops("deepseek-v4-pro", 4096), WithinRel(326.75, 0.02));
  CHECK_THAT(gflops("nemotron-3-ultra", 8192), WithinRel(360.6, 0.01));
}

TEST_CASE("layers, MTP depths and logits add up to the model") {
  for (const std::string& name : shipped_models()) {
    INFO(name);
    const ModelSpec m = load(name);
    double sum = 0;
    for (const LayerKind& layer : m.layers) sum += layer_model_flops_per_token(m, layer, 4096);
    double depth = 0;
    for (const LayerKind& layer : m.mtp_pattern)
      depth += layer_model_flops_per_token(m, layer, 4096);
    if (!m.hybrid) depth += 18.0 * m.hidden_size + 12.0 * m.hidden_size * m.hidden_size;
    const double logits = 6.0 * m.hidden_size * padded_vocab_size(m, 1);
    sum += m.mtp_num_layers * depth + (1 + m.mtp_num_layers) * logits;
    CHECK_THAT(model_flops_per_token(m, 4096, 1), WithinRel(sum, 1e-12));
  }
}

TEST_CASE("a window's average context is the mean over positions") {
  for (const auto& [window, seq] : {std::pair{128, 4096}, {4, 8}, {7, 7}, {1, 5}}) {
    double seen = 0;  // position i attends to min(i + 1, window) tokens
    for (int i = 0; i < seq; ++i) seen += std::min(i + 1, window);
    if (window < seq)
      CHECK_THAT(average_context(window, seq), WithinRel(seen / seq, 0.51 / window));
  }
  // exact closed form: W - W(W-1)/(2s)
  CHECK(average_context(4, 8) == 4 - 12.0 / 16);
  CHECK(average_context(0, 4096) == 2048);
  CHECK(average_context(8192, 4096) == 2048);
}

TEST_CASE("the vocabulary is padded to a multiple of 128 times tensor parallel size") {
  const ModelSpec m = load("qwen3-30b-a3b");  // 151936 = 1187 * 128
  CHECK(padded_vocab_size(m, 1) == 151936);
  CHECK(padded_vocab_size(m, 2) == 152064);
  CHECK(padded_vocab_size(m, 8) == 152576);
  CHECK(model_flops_per_token(m, 4096, 2) - model_flops_per_token(m, 4096, 1) == 6.0 * 2048 * 128);
}

TEST_CASE(
    "attention grows linearly per token with the sequence, linear attention and Mamba do not") {
  const auto growth = [](const char* name) {
    const ModelSpec m = load(name);
    return (model_flops_per_token(m, 8192, 1) - model_flops_per_token(m, 4096, 1)) / 4096;
  };
  // 6 n_a d per full layer
  CHECK_THAT(growth("qwen3-30b-a3b"), WithinRel(48.0 * 6 * 32 * 128, 1e-9));
  CHECK_THAT(growth("qwen3.5-35b-a3b"), WithinRel((10.0 + 1) * 6 * 16 * 256, 1e-9));
  CHECK_THAT(growth("nemotron-3-nano-30b-a3b"), WithinRel(6.0 * 6 * 32 * 128, 1e-9));
}

TEST_CASE("sparse attention costs as dense up to its top-k and less beyond") {
  ModelSpec m = load("glm5-2");
  Mixer x = m.mixers.at(1);
  Mixer unlimited = x;
  unlimited.index_topk = 1 << 20;
  CHECK(mixer_flops(m, x, 2048) == mixer_flops(m, unlimited, 2048));
  CHECK(mixer_flops(m, x, 8192) < mixer_flops(m, unlimited, 8192));
}
