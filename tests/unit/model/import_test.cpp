#include "helpers.hpp"
#include "model/params.hpp"

using namespace moecast;
using test::all;
using test::import_ok;
using test::import_text;

namespace {

/// A small config with `extra` keys after the common ones.
std::string config(const std::string& extra) {
  return R"({"architectures": ["TestForCausalLM"], "model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "intermediate_size": 96)" +
         (extra.empty() ? "" : ",\n" + extra) + "}";
}

std::string moe(const std::string& extra = "") {
  return config(R"("n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32)" +
                (extra.empty() ? "" : ", " + extra));
}

/// D dense, E moe.
std::string ffn_letters(const ModelSpec& m) {
  std::string letters;
  for (const LayerKind& l : m.layers)
    letters += l.ffn == FfnKind::dense ? 'D' : l.ffn == FfnKind::moe ? 'E' : '.';
  return letters;
}

}  // namespace

TEST_CASE("every spelling of routed experts and top-k is understood") {
  for (const char* experts :
       {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}) {
    for (const char* topk : {"num_experts_per_tok", "num_experts_per_token", "experts_per_token",
                             "moe_topk", "moe_k", "top_k_experts"}) {
      const ModelSpec m =
          import_ok(config("\"" + std::string(experts) + "\": 8, \"" + topk + "\": 2"));
      INFO(experts << " " << topk);
      CHECK(m.moe.num_moe_experts == 8);
      CHECK(m.moe.moe_router_topk == 2);
      CHECK(m.moe.moe_ffn_hidden_size ==
            96);  // intermediate_size is the expert width when nothing else is given
    }
  }
  CHECK(import_ok(config(R"("num_experts": 8, "moe_topk": [2, 2, 2, 2])")).moe.moe_router_topk ==
        2);
}

TEST_CASE("every spelling of the shared expert is understood") {
  const auto shared = [](const std::string& keys) {
    return import_ok(moe(keys)).moe.moe_shared_expert_intermediate_size;
  };
  CHECK(shared("\"n_shared_experts\": 2") == 64);
  CHECK(shared("\"num_shared_experts\": 1") == 32);
  CHECK(shared("\"num_shared_expert\": [1, 1, 1, 1]") == 32);
  CHECK(shared("\"moe_num_shared_experts\": 2") == 64);
  CHECK(shared("\"shared_expert_intermediate_size\": 48") == 48);
  CHECK(shared("\"shared_intermediate_size\": 0") == 0);
  CHECK(shared("\"share_expert_dim\": 40") == 40);
  // a stated total width is not multiplied by the number of shared experts (Nemotron)
  CHECK(shared("\"moe_shared_expert_intermediate_size\": 64, \"n_shared_experts\": 2") == 64);
  CHECK(shared("\"norm_topk_prob\": true") == 0);
}

TEST_CASE("every way to say which layers are MoE is understood") {
  const auto letters = [](const std::string& keys) { return ffn_letters(import_ok(moe(keys))); };
  CHECK(ffn_letters(import_ok(moe())) == "EEEE");
  CHECK(letters("\"first_k_dense_replace\": 1, \"moe_layer_freq\": 1") == "DEEE");
  CHECK(letters("\"first_k_dense_replace\": 1, \"moe_layer_freq\": 2") == "DDED");
  CHECK(letters("\"moe_layer_freq\": [0, 1, 0, 1]") == "DEDE");
  CHECK(letters("\"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]") == "DEDD");
  CHECK(letters("\"interleave_moe_layer_step\": 2") == "DEDE");
  CHECK(
      letters(
          "\"moe_layer_start_index\": 1, \"moe_layer_end_index\": 2, \"moe_layer_interval\": 1") ==
      "DEED");
  CHECK(letters("\"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\", \"sparse\"]") == "DEEE");
  CHECK(letters("\"moe_layers_enum\": \"1,3\"") == "DEDE");
  CHECK(ffn_letters(import_ok(config(""))) == "DDDD");
}

TEST_CASE("dense widths beside the experts have their own names") {
  const auto dense = [](const std::string& keys) {
    return import_ok(config(
        "\"num_local_experts\": 8, \"num_experts_per_tok\": 1, \"interleave_moe_layer_step\": 2" +
        keys));
  };
  CHECK(dense(", \"intermediate_size_mlp\": 128").ffn_hidden_size == 128);
  CHECK(dense(", \"dense_intermediate_size\": 160").ffn_hidden_size == 160);
  CHECK(dense("").ffn_hidden_size == 96);
  CHECK(dense(", \"intermediate_size_mlp\": 128").moe.moe_ffn_hidden_size == 96);
}

TEST_CASE(
    "the language model is found under text_config, llm_config, thinker_config and "
    "language_config") {
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    const ModelSpec m =
        import_ok("{\"tie_word_embeddings\": true, \"" + std::string(key) + "\": " + moe() + "}");
    CHECK(m.hidden_size == 64);
    CHECK_FALSE(m.untie_embeddings_and_output_weights);
  }
  CHECK(import_ok("{\"thinker_config\": {\"text_config\": " + moe() + "}}").moe.num_moe_experts ==
        8);
}

TEST_CASE("DBRX nests its experts and names its sizes its own way") {
  const ModelSpec m = import_ok(
      R"({"architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": 64, "n_heads": 4,
    "n_layers": 2, "vocab_size": 512, "attn_config": {"kv_n_heads": 2},
    "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 16, "moe_top_k": 4}})");
  CHECK(m.moe.num_moe_experts == 16);
  CHECK(m.moe.moe_router_topk == 4);
  CHECK(m.moe.moe_ffn_hidden_size == 96);
  CHECK(m.mixers.at(1).num_query_groups == 2);
  CHECK(m.mixers.at(1).qk_head_dim == 16);
}

TEST_CASE("MLA reads its own dimensions and is not misled by head_dim") {
  const ModelSpec m =
      import_ok(moe(R"("q_lora_rank": null, "kv_lora_rank": 24, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 12)"));
  const Mixer& x = m.mixers.at(1);
  CHECK(x.kind == MixerKind::mla);
  CHECK(x.q_lora_rank == 0);
  CHECK(x.qk_head_dim == 8);
  CHECK(x.num_query_groups == 4);
}

TEST_CASE("sliding layers become another mixer, with their own widths where given") {
  const ModelSpec m =
      import_ok(config(R"("sliding_window": 128, "swa_num_key_value_heads": 4, "v_head_dim": 8,
    "swa_v_head_dim": 8, "hybrid_layer_pattern": [0, 1, 1, 0])"));
  REQUIRE(m.mixers.size() == 3);
  CHECK(m.layers[0].mixer == m.layers[3].mixer);
  const Mixer& sliding = m.mixers.at(m.layers[1].mixer);
  CHECK(sliding.window == 128);
  CHECK(sliding.num_query_groups == 4);
  CHECK(m.mixers.at(m.layers[0].mixer).window == 0);
  CHECK(m.mixers.at(m.layers[0].mixer).v_head_dim == 8);
}

TEST_CASE("a sliding window that is switched off is full attention") {
  CHECK(import_ok(config("\"sliding_window\": null")).mixers.at(1).window == 0);
  CHECK(import_ok(config("\"sliding_window\": 64, \"use_sliding_window\": false"))
            .mixers.at(1)
            .window == 0);
  CHECK(import_ok(config("\"sliding_window\": 64")).mixers.at(1).window == 64);
}

TEST_CASE(
    "Gemma's global layers have other heads and no V weights, and its dense MLP runs beside the "
    "experts") {
  const ModelSpec m = test::load("gemma-4-26b-a4b-it");
  CHECK_FALSE(m.untie_embeddings_and_output_weights);
  CHECK(m.moe.moe_shared_expert_intermediate_size == 2112);
  const Mixer& global = m.mixers.at(m.layers[5].mixer);
  CHECK(global.k_equals_v);
  CHECK(global.qk_head_dim == 512);
  CHECK(global.num_query_groups == 2);
  CHECK(m.mixers.at(m.layers[0].mixer).window == 1024);
}

TEST_CASE("Kimi delta attention takes the layers its config lists") {
  const ModelSpec m = import_ok(
      moe(R"("kv_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12,
    "linear_attn_config": {"kda_layers": [1, 2, 4], "full_attn_layers": [3], "num_heads": 4, "head_dim": 16,
    "short_conv_kernel_size": 4})"));
  CHECK(m.mixers.at(m.layers[0].mixer).kind == MixerKind::kda);
  CHECK(m.mixers.at(m.layers[2].mixer).kind == MixerKind::mla);
  CHECK(m.layers[3].mixer == m.layers[0].mixer);
}

TEST_CASE("a hybrid model is read from a letter pattern or a list of block types") {
  const std::string common =
      R"("hidden_size": 64, "vocab_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4,
    "intermediate_size": 48, "mlp_hidden_act": "relu2", "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 48, "moe_latent_size": 32, "model_type": "nemotron_h", "num_nextn_predict_layers": 1)";
  const ModelSpec letters =
      import_ok("{" + common + R"(, "num_hidden_layers": 4, "hybrid_override_pattern": "ME*-",
    "mtp_hybrid_override_pattern": "*E"})");
  const ModelSpec list =
      import_ok("{" + common + R"(, "layers_block_type": ["mamba", "moe", "attention", "mlp"],
    "mtp_layers_block_type": ["attention", "moe"]})");
  CHECK(letters.layers == list.layers);
  CHECK(letters.mtp_pattern == list.mtp_pattern);
  CHECK(letters.mixers == list.mixers);
  CHECK(letters.hybrid);
  CHECK_FALSE(letters.gated_linear_unit);
  CHECK(letters.mtp_use_repeated_layer);
  CHECK(ffn_letters(letters) == ".E.D");
  CHECK(letters.moe.moe_latent_size == 32);
}

TEST_CASE("MTP depths have three spellings, and use_mtp false switches them off") {
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"}) {
    CHECK(import_ok(moe("\"" + std::string(key) + "\": 2")).mtp_num_layers == 2);
  }
  CHECK(import_ok(moe("\"num_mtp_modules\": 3, \"use_mtp\": false")).mtp_num_layers == 0);
}

TEST_CASE(
    "keys that cost something and are not modelled are named with their effect, unknown ones in "
    "one line") {
  const ModelSpec m =
      import_ok(moe(R"("attention_chunk_size": 8192, "num_kv_shared_layers": 0, "rope_theta": 1e6,
    "_source": "x", "frobnicate": 3, "wibble": "y")"));
  REQUIRE(m.warnings.size() == 2);
  CHECK(m.warnings[0].find("attention_chunk_size") == 0);
  CHECK(m.warnings[0].find("upper bound") != std::string::npos);
  CHECK(m.warnings[1].find("frobnicate, wibble") != std::string::npos);
}

TEST_CASE("an architecture that is not in the table is read by its keys, with a warning") {
  std::string text = moe();
  text.replace(text.find("mixtral"), 7, "novelty");
  const ModelSpec m = import_ok(text);
  REQUIRE(m.warnings.size() == 1);
  CHECK(m.warnings[0].find("TestForCausalLM") != std::string::npos);
}

TEST_CASE("Megatron-Bridge lets the last alias win, moecast refuses aliases that disagree") {
  const Result<ModelSpec> r = import_text(
      config("\"num_experts\": 8, \"n_routed_experts\": 16, \"num_experts_per_tok\": 2"));
  REQUIRE_FALSE(r.ok());
  CHECK(r.problems().at(0).key == "num_experts");
  CHECK(import_ok(config("\"num_experts\": 8, \"n_routed_experts\": 8, \"num_experts_per_tok\": 2"))
            .moe.num_moe_experts == 8);
}
