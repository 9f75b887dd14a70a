#include "layout/megatron_config.hpp"

#include <set>

#include "catch.hpp"
#include "layout/layer_pattern.hpp"
#include "layout/mutations.hpp"

using namespace moecast;
using nlohmann::json;

TEST_CASE("Every option has one name, one flag and one Bridge path") {
  std::set<std::string_view> names, flags, paths;
  for (const MegatronField& f : megatron_fields()) {
    INFO(f.name);
    CHECK(names.insert(f.name).second);
    CHECK((f.flag.empty() || flags.insert(f.flag).second));
    CHECK((f.bridge.empty() || paths.insert(f.bridge).second));
    CHECK((f.flag.empty() || f.flag.substr(0, 2) == "--"));
    CHECK(find_megatron_field(f.name) == &f);
  }
}

TEST_CASE("An option that is set reads back, by Megatron-LM's and by Bridge's name") {
  MegatronConfig c;
  CHECK_FALSE(set(c, "num_moe_experts", 64));
  CHECK(c.num_experts == 64);
  CHECK_FALSE(set(c, "recompute_modules", json::array({"moe_act", "bogus"})));
  CHECK(c.recompute_modules.has("moe_act"_w));
  CHECK(c.recompute_modules.has_other());
  CHECK(c.other_words.at("recompute_modules") == "bogus");
  CHECK_FALSE(set(c, "env.CUDA_DEVICE_MAX_CONNECTIONS", 8));
  CHECK(c.env.at("CUDA_DEVICE_MAX_CONNECTIONS") == "8");
  CHECK_FALSE(set(c, "moe_layer_freq", "([0]*1+[1]*2)"));
  CHECK(get(c, *find_megatron_field("moe_layer_freq")) == json({0, 1, 1}));
  CHECK_FALSE(set(c, "num_moe_experts", nullptr));
  CHECK_FALSE(c.num_experts.has_value());
}

TEST_CASE("A wrong value leaves the configuration as it was and says what is wanted") {
  const MegatronConfig untouched;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, json>>{{"world_size", "many"},
                                                 {"world_size", 1e30},
                                                 {"world_size", 1.5},
                                                 {"bf16", 1},
                                                 {"moe_layer_freq", "[1"},
                                                 {"recompute_modules", 3},
                                                 {"tensor_model_paralel_size", 2}}) {
    MegatronConfig c;
    const auto problem = set(c, name, value);
    INFO(name);
    REQUIRE(problem);
    CHECK(problem->key == name);
    CHECK(c == untouched);
  }
  MegatronConfig c;
  CHECK(set(c, "tensor_model_paralel_size", 2)->hint ==
        "did you mean 'tensor_model_parallel_size'?");
}

TEST_CASE("Bridge's defaults differ where its own classes say so") {
  CHECK(default_config(Flavour::megatron_lm) == MegatronConfig{});
  const MegatronConfig bridge = default_config(Flavour::bridge);
  CHECK(bridge.wgrad_deferral_limit == -1);
  CHECK(bridge.optimizer_offload_fraction == 0.0);
  CHECK(bridge.fp8_recipe == "tensorwise"_w);
}

TEST_CASE("Layer patterns are Python list expressions") {
  using List = std::vector<int>;
  CHECK(parse_layer_pattern("3") == List{3});
  CHECK(parse_layer_pattern("[0,1,1]") == List{0, 1, 1});
  CHECK(parse_layer_pattern("([0]*2 + [1])*2") == List{0, 0, 1, 0, 0, 1});
  CHECK(parse_layer_pattern("2*[1]") == List{1, 1});
  CHECK(parse_layer_pattern("[]") == List{});
  for (const char* bad :
       {"", "[", "[1,", "x", "[1]*[1]", "[1]+1", "[1]*999999999", "((((", "1 2"}) {
    INFO(bad);
    CHECK_FALSE(parse_layer_pattern(bad));
  }
  CHECK_FALSE(parse_layer_pattern(std::string(100'000, '(')));
}

TEST_CASE("Mutations follow the launcher: expert tensor parallelism, sequence parallelism, VPP") {
  const auto mutated = [](Flavour flavour, const json& options) {
    MegatronConfig c = default_config(flavour);
    for (const auto& [name, value] : options.items()) CHECK_FALSE(set(c, name, value));
    mutate(c, surroundings_of(c, flavour));
    return c;
  };
  const json experts{{"tensor_model_parallel_size", 4}, {"expert_model_parallel_size", 8}};
  CHECK(mutated(Flavour::bridge, experts).expert_tensor_parallel_size == 1);
  CHECK(mutated(Flavour::megatron_lm, experts).expert_tensor_parallel_size == 4);
  CHECK_FALSE(mutated(Flavour::megatron_lm, {{"sequence_parallel", true}}).sequence_parallel);
  const json string{{"pipeline_model_parallel_size", 2},
                    {"pipeline_model_parallel_layout", "Et|t|t|tL"},
                    {"num_layers", 4}};
  const MegatronConfig bridge = mutated(Flavour::bridge, string);
  CHECK(bridge.num_virtual_stages_per_pipeline_rank == 2);
  CHECK(bridge.overlap_p2p_comm == false);  // decided before the string is read
  CHECK(mutated(Flavour::megatron_lm, string).overlap_p2p_comm == true);
}

TEST_CASE("Each mutation that changes something is a finding with before and after") {
  MegatronConfig c = default_config(Flavour::megatron_lm);
  c.sequence_parallel = true;
  c.moe_expert_capacity_factor = -1;
  std::set<std::string> ids;
  for (const Finding& f : mutations_of(c, surroundings_of(c, Flavour::megatron_lm))) {
    CHECK(f.severity == Severity::mutation);
    CHECK(f.message.find(" -> ") != std::string::npos);
    ids.insert(f.rule);
  }
  CHECK(ids.count("SET-SP-OFF") == 1);
  CHECK(ids.count("SET-CAPACITY-NONE") == 1);
  CHECK(ids.count("SET-LAYER-OFFLOAD") == 0);
  for (const Mutation& m : mutation_table()) {
    for (const std::string& name : words_of(m.writes)) {
      INFO(m.id << " " << name);
      CHECK(find_megatron_field(name) != nullptr);
    }
  }
}
