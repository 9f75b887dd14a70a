#include "layout/knobs.hpp"

#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "catch.hpp"
#include "core/document.hpp"
#include "layout/enum_names.hpp"

using namespace moecast;

namespace {

std::string set(Run& run, const std::string& name, const Value& value) {
  const Knob* knob = find_knob(name);
  REQUIRE(knob != nullptr);
  return knob->set(run, value);
}

template <typename E>
void check_enum(const std::vector<std::string>& texts) {
  REQUIRE(enum_choices<E>() == texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(enum_text(static_cast<E>(i)) == texts[i]);
    CHECK(enum_from_text<E>(texts[i]) == static_cast<E>(i));
  }
  CHECK_FALSE(enum_from_text<E>("nothing like it"));
}

}  // namespace

TEST_CASE("every enum has the spelling of run files, in the order of its values") {
  check_enum<Precision>(
      {"bf16", "fp8_delayed", "fp8_tensorwise", "fp8_blockwise", "mxfp8", "nvfp4"});
  check_enum<Dispatcher>({"alltoall", "allgather", "deepep", "hybridep"});
  check_enum<Tristate>({"auto", "false", "true"});
  check_enum<DType>({"fp32", "bf16", "fp16", "fp8"});
  check_enum<RecomputeGranularity>({"none", "selective", "full"});
  check_enum<RecomputeMethod>({"null", "uniform", "block"});
  check_enum<CudaGraphImpl>({"none", "local", "transformer_engine", "full_iteration"});
  check_enum<PipelineSplit>({"auto", "null", "string"});
  check_enum<CpCommType>({"p2p", "all_gather", "a2a", "a2a+p2p"});
  check_enum<FsdpSharding>({"null", "optim_grads_params"});
  check_enum<Routing::Kind>({"force_balance", "imbalance", "tokens_per_expert"});
  check_enum<RecomputeModule>({"core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe",
                               "shared_experts", "gdn_norm_out", "mhc"});
  check_enum<OffloadModule>({"core_attn", "attn_proj", "expert_fc1", "fused_group_mlp", "moe_act",
                             "attn_norm", "mlp_norm", "qkv_linear"});
  check_enum<GraphModule>({"attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"});
  CHECK(enum_choices<RecomputeModule>().size() == std::size_t(RecomputeModule::count));
  CHECK(enum_choices<OffloadModule>().size() == std::size_t(OffloadModule::count));
  CHECK(enum_choices<GraphModule>().size() == std::size_t(GraphModule::count));
  CHECK(to_string(Precision::fp8_blockwise) == "fp8_blockwise");
  CHECK(to_string(Dispatcher::deepep) == "deepep");
}

TEST_CASE("the table has the leaves of the run file in their order") {
  const std::vector<std::string> expected = {"model",
                                             "cluster.system",
                                             "cluster.gpus",
                                             "cluster.gpus_used_per_domain",
                                             "cluster.system_overrides",
                                             "train.seq_length",
                                             "train.micro_batch_size",
                                             "train.global_batch_size",
                                             "layout.tensor_model_parallel_size",
                                             "layout.pipeline_model_parallel_size",
                                             "layout.virtual_pipeline_model_parallel_size",
                                             "layout.context_parallel_size",
                                             "layout.expert_model_parallel_size",
                                             "layout.expert_tensor_parallel_size",
                                             "layout.microbatch_group_size_per_vp_stage",
                                             "layout.pipeline_model_parallel_layout",
                                             "layout.sequence_parallel",
                                             "precision",
                                             "moe.dispatcher",
                                             "moe.dispatcher_num_sms",
                                             "moe.overlap_moe_expert_parallel_comm",
                                             "moe.delay_wgrad_compute",
                                             "moe.moe_shared_expert_overlap",
                                             "moe.routing",
                                             "moe.capacity_factor",
                                             "recompute.granularity",
                                             "recompute.modules",
                                             "recompute.method",
                                             "recompute.num_layers",
                                             "offload.activation_modules",
                                             "offload.activation_fraction",
                                             "offload.optimizer_fraction",
                                             "offload.cpu_offloading_num_layers",
                                             "cuda_graph.impl",
                                             "cuda_graph.scope",
                                             "optimizer.distributed",
                                             "optimizer.grad_dtype",
                                             "optimizer.master_dtype",
                                             "optimizer.moment_dtype",
                                             "optimizer.precision_aware",
                                             "comm.overlap_grad_reduce",
                                             "comm.overlap_param_gather",
                                             "comm.tp_comm_overlap",
                                             "comm.cp_comm_type",
                                             "fsdp",
                                             "software.container",
                                             "software.pytorch",
                                             "software.transformer_engine",
                                             "software.megatron_core",
                                             "software.bridge",
                                             "software.features",
                                             "software.env",
                                             "model_overrides"};
  std::vector<std::string> keys;
  for (const Knob& knob : knob_table()) {
    keys.emplace_back(knob.key);
    INFO(knob.key);
    CHECK_FALSE(knob.domain.empty());
    CHECK(knob.help.ends_with('.'));
  }
  CHECK(keys == expected);
}

TEST_CASE("every default text parses to the knob's default") {
  for (const Knob& knob : knob_table()) {
    if (knob.default_text.empty()) continue;
    INFO(knob.key);
    auto node = parse_value(knob.default_text, "default");
    REQUIRE(node.ok());
    Run run;
    run.layout.tp = run.layout.vpp = 7;  // so that setting a default is seen to write
    run.routing.kind = Routing::Kind::imbalance;
    run.software.env["A"] = run.software.pytorch = "1";
    CHECK(knob.set(run, node.value().to_json()) == "");
    CHECK(knob.get(run) == knob.get(Run{}));
  }
}

TEST_CASE(
    "short names, Megatron's names and section paths find the same knob, and no name means two") {
  for (const auto& [name, key] : std::map<std::string, std::string>{
           {"tp", "layout.tensor_model_parallel_size"},
           {"layout.tp", "layout.tensor_model_parallel_size"},
           {"tensor_model_parallel_size", "layout.tensor_model_parallel_size"},
           {"pp", "layout.pipeline_model_parallel_size"},
           {"vpp", "layout.virtual_pipeline_model_parallel_size"},
           {"cp", "layout.context_parallel_size"},
           {"ep", "layout.expert_model_parallel_size"},
           {"etp", "layout.expert_tensor_parallel_size"},
           {"mbs", "train.micro_batch_size"},
           {"gbs", "train.global_batch_size"},
           {"seq", "train.seq_length"},
           {"seq_length", "train.seq_length"},
           {"dispatcher", "moe.dispatcher"},
           {"recompute_granularity", "recompute.granularity"},
           {"cuda_graph_scope", "cuda_graph.scope"},
           {"cuda_graph_modules", "cuda_graph.scope"},
           {"optimizer_offload_fraction", "offload.optimizer_fraction"},
           {"use_distributed_optimizer", "optimizer.distributed"}}) {
    INFO(name);
    REQUIRE(find_knob(name) != nullptr);
    CHECK(find_knob(name)->key == key);
  }
  std::map<std::string, std::set<std::string_view>> owners;
  for (const Knob& knob : knob_table()) {
    for (const std::string& name : knob.names()) {
      owners[std::string(knob.section()) + "." + name].insert(knob.key);
    }
    CHECK(find_knob(knob.key) == &knob);
  }
  for (const auto& [name, keys] : owners) {
    INFO(name);
    CHECK(keys.size() == 1);
  }
  for (const std::string& name : knob_names()) CHECK(find_knob(name) != nullptr);
}

TEST_CASE("a bare leaf that would mean something else to Megatron is no name") {
  for (const char* name : {"num_layers", "modules", "method", "impl", "distributed", "features", "",
                           "layout", "moe_token_dispatcher_type", "layout."}) {
    INFO(name);
    CHECK(find_knob(name) == nullptr);
  }
}

TEST_CASE("integers must be whole and within their range, and a refused value changes nothing") {
  Run run;
  CHECK(set(run, "tp", 8) == "");
  CHECK(set(run, "pp", 4.0) == "");
  CHECK(run.layout.tp == 8);
  CHECK(run.layout.pp == 4);
  const Run before = run;
  for (const Value& bad :
       {Value(0), Value(-1), Value(4.5), Value(1025), Value(1e300), Value("8"), Value(nullptr),
        Value(true), Value::array({8}), Value(std::numeric_limits<std::uint64_t>::max())}) {
    INFO(bad);
    CHECK(set(run, "tp", bad).starts_with("must be integer 1..1024, not "));
  }
  CHECK(run == before);
  CHECK(set(run, "vpp", 4) == "");
  CHECK(set(run, "vpp", nullptr) == "");
  CHECK(run.layout.vpp == 1);
  CHECK(find_knob("vpp")->get(run) == Value(nullptr));
}

TEST_CASE("numbers keep their bounds") {
  Run run;
  CHECK(set(run, "offload.activation_fraction", 0) == "");
  CHECK(run.layout.offload_fraction == 0.0);
  CHECK(set(run, "offload.activation_fraction", 1.01) == "must be number 0..1, not 1.01");
  CHECK(set(run, "moe.capacity_factor", 1.25) == "");
  CHECK(run.capacity_factor == 1.25);
  CHECK(set(run, "moe.capacity_factor", 0).starts_with("must be null | number > 0"));
  CHECK(set(run, "moe.capacity_factor", nullptr) == "");
  CHECK(run.capacity_factor == 0.0);
}

TEST_CASE("choices take their spellings and name the nearest") {
  Run run;
  CHECK(set(run, "precision", "mxfp8") == "");
  CHECK(run.layout.precision == Precision::mxfp8);
  CHECK(set(run, "precision", "mxpf8") == "'mxpf8' is not a known value; did you mean 'mxfp8'?");
  CHECK(set(run, "comm.cp_comm_type", "a2a+p2p") == "");
  CHECK(run.layout.cp_comm_type == CpCommType::a2a_p2p);
  CHECK(set(run, "sequence_parallel", true) == "");
  CHECK(run.layout.sequence_parallel == Tristate::on);
  CHECK(set(run, "sequence_parallel", "auto") == "");
  CHECK(run.layout.sequence_parallel == Tristate::automatic);
  CHECK(set(run, "recompute.method", "block") == "");
  CHECK(set(run, "recompute.method", nullptr) == "");
  CHECK(run.layout.recompute_method == RecomputeMethod::none);
  CHECK(set(run, "recompute.granularity", nullptr) == "");  // None is Megatron's word
  CHECK(set(run, "optimizer.grad_dtype", "double") ==
        "'double' is not a known value; one of fp32, bf16");
  CHECK(set(run, "optimizer.moment_dtype", "fp8") == "");
  CHECK(set(run, "comm.overlap_grad_reduce", "true") == "must be true or false, not 'true'");
}

TEST_CASE("a module list names each module once") {
  Run run;
  CHECK(set(run, "recompute.modules", {"moe_act", "layernorm"}) == "");
  CHECK(run.layout.recompute_modules.has(RecomputeModule::moe_act));
  CHECK(run.layout.recompute_modules.has(RecomputeModule::layernorm));
  CHECK(run.layout.recompute_modules.bits == 0b110);
  CHECK(set(run, "recompute.modules", {"moe_act", "moe_act"}) ==
        "moe_act is named twice; drop one");
  CHECK(set(run, "recompute.modules", Value::array({"layer_norm"})) ==
        "'layer_norm' is not a known value; did you mean 'layernorm'?");
  CHECK(set(run, "recompute.modules", "moe_act").starts_with("must be a list such as"));
  CHECK(run.layout.recompute_modules.bits == 0b110);
  CHECK(set(run, "recompute.modules", Value::array()) == "");
  CHECK(run.layout.recompute_modules.empty());
}

TEST_CASE("the pipeline layout is auto, null or Megatron's string") {
  Run run;
  CHECK(set(run, "pipeline_model_parallel_layout", "Et*3|(tt|)*29m|L") == "");
  CHECK(run.layout.pipeline_split == PipelineSplit::explicit_string);
  CHECK(run.pipeline_model_parallel_layout == "Et*3|(tt|)*29m|L");
  CHECK(set(run, "pipeline_model_parallel_layout", nullptr) == "");
  CHECK(run.layout.pipeline_split == PipelineSplit::megatron);
  CHECK(run.pipeline_model_parallel_layout.empty());
  CHECK(set(run, "pipeline_model_parallel_layout", "auto") == "");
  CHECK(run == Run{});
  CHECK(set(run, "pipeline_model_parallel_layout", 3) != "");
}

TEST_CASE("fsdp is null or a sharding strategy") {
  Run run;
  CHECK(set(run, "fsdp", {{"sharding", "optim_grads_params"}}) == "");
  CHECK(run.layout.fsdp == FsdpSharding::optim_grads_params);
  for (const Value& bad : {Value(true), Value::object(), Value{{"sharding", "optim"}},
                           Value{{"sharding", "optim_grads_params"}, {"version", 2}}}) {
    INFO(bad);
    CHECK(set(run, "fsdp", bad) != "");
  }
  CHECK(set(run, "fsdp", nullptr) == "");
  CHECK(run.layout.fsdp == FsdpSharding::none);
}

TEST_CASE("flags and Bridge keys are those of Megatron") {
  // Megatron-LM megatron/training/arguments.py and the config dataclasses; Megatron-Bridge
  // src/megatron/bridge/training/config.py.
  const std::map<std::string, std::pair<std::string, std::string>> expected = {
      {"vpp",
       {"--num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size"}},
      {"ep", {"--expert-model-parallel-size", "model.expert_model_parallel_size"}},
      {"gbs", {"--global-batch-size", "train.global_batch_size"}},
      {"moe.dispatcher_num_sms",
       {"--moe-flex-dispatcher-num-sms", "model.moe_flex_dispatcher_num_sms"}},
      {"moe.delay_wgrad_compute", {"--delay-wgrad-compute", "comm_overlap.delay_wgrad_compute"}},
      {"offload.activation_modules", {"--offload-modules", "model.offload_modules"}},
      {"cuda_graph.scope", {"--cuda-graph-modules", "model.cuda_graph_modules"}},
      {"comm.tp_comm_overlap", {"--tp-comm-overlap", "comm_overlap.tp_comm_overlap"}}};
  for (const auto& [name, names] : expected) {
    INFO(name);
    CHECK(find_knob(name)->megatron_flag == names.first);
    CHECK(find_knob(name)->bridge_key == names.second);
  }
}

TEST_CASE("docs/knobs.md is what the table says") {
  const std::string path = std::string(MOECAST_SOURCE_DIR) + "/docs/knobs.md";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (text.str() != knobs_markdown()) std::ofstream(path + ".new") << knobs_markdown();
  INFO("accept with: mv docs/knobs.md.new docs/knobs.md");
  CHECK(text.str() == knobs_markdown());
}
