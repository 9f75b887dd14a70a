#include "layout/run_file.hpp"

#include <map>

#include "layout/routing_value.hpp"
#include "run_file_fixture.hpp"

using namespace moecast;

TEST_CASE("a run file of four keys is completed with the defaults") {
  Run run = minimal();
  CHECK(run.model == "deepseek-v3");
  CHECK(run.system == "gb200-nvl72");
  CHECK(run.gpus == 256);
  CHECK(run.seq_length == 4096);
  CHECK(run.global_batch_size == 4096);
  CHECK(run.layout == Layout{});
  CHECK(run.routing == Routing{});
  CHECK(run.software == Software{});
  CHECK(run.base_dir.empty());
}

TEST_CASE("every section of the run file reaches its field") {
  auto read = parse(kMinimal + R"(
layout: {tp: 2, pp: 4, vpp: 3, cp: 5, ep: 64, etp: 6, sequence_parallel: false,
         microbatch_group_size_per_vp_stage: 8, pipeline_model_parallel_layout: "Et*3|(tt|)*29m|L"}
precision: nvfp4
moe: {dispatcher: deepep, dispatcher_num_sms: 24, overlap_moe_expert_parallel_comm: true,
      delay_wgrad_compute: true, moe_shared_expert_overlap: true, routing: {imbalance: 1.2}, capacity_factor: 1.5}
recompute: {granularity: full, modules: [moe_act, mhc], method: uniform, num_layers: 2}
offload: {activation_modules: [qkv_linear], activation_fraction: 0.5, optimizer_fraction: 0.25, cpu_offloading_num_layers: 7}
cuda_graph: {impl: local, scope: [attn, mamba]}
optimizer: {distributed: false, grad_dtype: bf16, master_dtype: fp16, moment_dtype: fp8, precision_aware: true}
comm: {overlap_grad_reduce: false, overlap_param_gather: false, tp_comm_overlap: true, cp_comm_type: a2a+p2p}
fsdp: {sharding: optim_grads_params}
software: {container: 26.06, pytorch: 2.10, features: {paged_stash: true}, env: {CUDA_DEVICE_MAX_CONNECTIONS: 32}}
model_overrides: {num_hidden_layers: 4, n_routed_experts: 32}
)");
  INFO(listed(read.problems()));
  REQUIRE(read.ok());
  Layout expected;
  expected.tp = 2, expected.pp = 4, expected.vpp = 3;
  expected.cp = 5, expected.ep = 64, expected.etp = 6;
  expected.microbatch_group_size_per_vp_stage = 8;
  expected.pipeline_split = PipelineSplit::explicit_string;
  expected.sequence_parallel = Tristate::off;
  expected.precision = Precision::nvfp4;
  expected.dispatcher = Dispatcher::deepep;
  expected.dispatcher_num_sms = 24;
  expected.overlap_moe_expert_parallel_comm = expected.delay_wgrad_compute = true;
  expected.moe_shared_expert_overlap = true;
  expected.recompute_granularity = RecomputeGranularity::full;
  expected.recompute_method = RecomputeMethod::uniform;
  expected.recompute_num_layers = 2;
  expected.recompute_modules.add(RecomputeModule::moe_act).add(RecomputeModule::mhc);
  expected.offload_modules.add(OffloadModule::qkv_linear);
  expected.offload_fraction = 0.5;
  expected.optimizer_offload_fraction = 0.25;
  expected.cpu_offloading_num_layers = 7;
  expected.cuda_graph_impl = CudaGraphImpl::local;
  expected.cuda_graph_scope.add(GraphModule::attn).add(GraphModule::mamba);
  expected.distributed_optimizer = false;
  expected.grad_dtype = DType::bf16;
  expected.master_dtype = DType::fp16;
  expected.moment_dtype = DType::fp8;
  expected.precision_aware_optimizer = true;
  expected.overlap_grad_reduce = expected.overlap_param_gather = false;
  expected.tp_comm_overlap = true;
  expected.cp_comm_type = CpCommType::a2a_p2p;
  expected.fsdp = FsdpSharding::optim_grads_params;
  const Run& run = read.value();
  CHECK(run.layout == expected);
  CHECK(run.pipeline_model_parallel_layout == "Et*3|(tt|)*29m|L");
  CHECK(run.routing.kind == Routing::Kind::imbalance);
  CHECK(run.routing.imbalance == 1.2);
  CHECK(run.capacity_factor == 1.5);
  CHECK(run.software.container == "26.06");
  CHECK(run.software.pytorch == "2.10");  // not the number 2.1
  CHECK(run.software.features == std::map<std::string, bool>{{"paged_stash", true}});
  CHECK(run.software.env ==
        std::map<std::string, std::string>{{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}});
  CHECK(run.model_overrides == Value{{"num_hidden_layers", 4}, {"n_routed_experts", 32}});
}

TEST_CASE("all problems of a file are reported at once, with their places") {
  auto read = parse(
      "schema: moecast/run@1\n"
      "cluster: {gpus: 25.5}\n"
      "train:\n"
      "  seq_length: 4096\n"
      "layout:\n"
      "  tensor_paralel_size: 8\n"
      "  pp: four\n"
      "  precision: bf16\n"
      "moe: [alltoall]\n"
      "recompute: {modules: [moe_act, moe_act]}\n"
      "zzz: 1\n",
      {"ep=0", "layuot.tp=2"});
  REQUIRE_FALSE(read.ok());
  CHECK(
      lines(read.problems()) ==
      std::vector<std::string>{
          "run.yaml:2:17: cluster.gpus: must be integer 1..1048576, not 25.5",
          "run.yaml:6:3: layout.tensor_paralel_size: unknown key; did you mean "
          "'tensor_model_parallel_size'?",
          "run.yaml:7:7: layout.pipeline_model_parallel_size: must be integer 1..1024, not 'four'",
          "run.yaml:8:3: layout.precision: unknown key; did you mean 'precision'?",
          "run.yaml:9:6: moe: must be a map of keys",
          "run.yaml:10:22: recompute.modules: moe_act is named twice; drop one",
          "run.yaml:11:1: zzz: unknown key",
          "--set: layout.expert_model_parallel_size: must be integer 1..1024, not 0",
          "--set: layuot.tp: unknown key; did you mean 'layout.tp'?",
          "run.yaml:1:1: model: is missing; The model: a shipped name, a Hugging Face "
          "config.json, or a model YAML.",
          "run.yaml:2:10: cluster.system: is missing; The machine: a shipped name, a hardware "
          "file, or a calibrated profile.",
          "run.yaml:4:3: train.global_batch_size: is missing; Samples of one optimizer step over "
          "all data-parallel ranks."});
}

TEST_CASE("what a file lacks may come from --set, and the schema line may not be missing") {
  CHECK(parse("schema: moecast/run@1\nmodel: deepseek-v3\n",
              {"gpus=8", "system=dgx-h100", "seq=4096", "gbs=8"})
            .ok());
  auto read = parse("model: deepseek-v3\n", {"gpus=8", "system=dgx-h100", "seq=4096", "gbs=8"});
  REQUIRE(read.problems().size() == 1);
  CHECK(read.problems()[0].key == "schema");
  CHECK_FALSE(parse("[1, 2]").ok());
}

TEST_CASE("one knob under two names is refused and both lines are named") {
  auto read = parse(kMinimal + "layout:\n  tp: 8\n  pp: 2\n  tensor_model_parallel_size: 8\n");
  REQUIRE(read.problems().size() == 1);
  CHECK(to_string(read.problems()[0]) ==
        "run.yaml:8:3: layout.tensor_model_parallel_size: is given twice, as 'tp' on line 6 and as "
        "'tensor_model_parallel_size' on line 8; keep one of them");
}

TEST_CASE("--set overrides the file, by any name, in order") {
  auto read = parse(kMinimal +
                        "layout: {tp: 2}\nsoftware: {features: {paged_stash: true}}\n"
                        "model_overrides: {rope_scaling: {factor: 2, type: yarn}}\n",
                    {"tp=4", "layout.tp=8", "moe.dispatcher=deepep", "recompute.modules=[moe_act]",
                     "software.features.fused_grouped_mlp=true", "software.pytorch=2.10",
                     "software.env.NVLINK_DOMAIN_SIZE=72", "model_overrides.num_hidden_layers=4",
                     "model_overrides.rope_scaling.factor=40", "moe.routing.imbalance=1.5",
                     "fsdp.sharding=optim_grads_params",
                     "layout.pipeline_model_parallel_layout=Et*3|(tt|)*29m|L"});
  INFO(listed(read.problems()));
  REQUIRE(read.ok());
  const Run& run = read.value();
  CHECK(run.layout.tp == 8);
  CHECK(run.layout.dispatcher == Dispatcher::deepep);
  CHECK(run.layout.recompute_modules.has(RecomputeModule::moe_act));
  CHECK(run.software.features ==
        std::map<std::string, bool>{{"fused_grouped_mlp", true}, {"paged_stash", true}});
  CHECK(run.software.pytorch == "2.10");
  CHECK(run.software.env.at("NVLINK_DOMAIN_SIZE") == "72");
  CHECK(run.model_overrides ==
        Value{{"rope_scaling", {{"factor", 40}, {"type", "yarn"}}}, {"num_hidden_layers", 4}});
  CHECK(run.routing.imbalance == 1.5);
  CHECK(run.layout.fsdp == FsdpSharding::optim_grads_params);
  CHECK(run.pipeline_model_parallel_layout == "Et*3|(tt|)*29m|L");
}

TEST_CASE("a --set that is wrong says why and leaves the run as it was") {
  const Run before = minimal();
  for (const std::string& wrong :
       std::vector<std::string>{"",
                                "=",
                                "tp",
                                "=8",
                                "tp=",
                                "tp=8.5",
                                "tp.x=1",
                                "layout=8",
                                "layout.=8",
                                "tpp.q=8",
                                "software.features.x=1",
                                "recompute.modules=[moe_act",
                                "moe.dispatcher=deep\xff",
                                "\xff\xfe=1",
                                "schema=moecast/run@1",
                                "model_overrides=3",
                                "model=[a]",
                                "moe.routing={imbalance: 0.5}",
                                "moe.routing={imbalance: 2, tokens_per_expert: f}",
                                "num_layers=4",
                                "model_overrides." + std::string(5000, '.') + "=1"}) {
    INFO(wrong);
    Run run = before;
    Diagnostics problems = apply_set(run, wrong);
    REQUIRE_FALSE(problems.empty());
    CHECK(problems[0].file == "--set");
    CHECK(run == before);
  }
  Run run = before;
  CHECK(
      to_string(apply_set(run, "layout=8")[0]).starts_with("--set: layout: is a section; set one"));
}

TEST_CASE("a JSON run file is the same tree") {
  auto yaml = parse(kMinimal + "layout: {tp: 2, vpp: null}\nsoftware: {pytorch: \"2.10\"}\n");
  auto json = parse(R"({"schema": "moecast/run@1", "model": "deepseek-v3",
    "cluster": {"system": "gb200-nvl72", "gpus": 256},
    "train": {"seq_length": 4096, "global_batch_size": 4096},
    "layout": {"tp": 2, "vpp": null}, "software": {"pytorch": "2.10"}})");
  REQUIRE(yaml.ok());
  REQUIRE(json.ok());
  CHECK(json.value() == yaml.value());
}

TEST_CASE("tokens per expert are read beside the run file, in both forms") {
  Folder folder("routing");
  folder.write("run.yaml", kMinimal + "moe: {routing: {tokens_per_expert: w.csv}}\n");
  const std::vector<double> expected = {3, 0.5, 0, 7};
  for (const std::string& text : std::vector<std::string>{
           "3\n0.5\n0\n7\n", "# counts\nexpert,tokens\r\n2,0\r\n0,3\r\n3, 7\r\n1,0.5\r\n",
           "tokens\n3\n\n0.5  # half\n0\n7"}) {
    INFO(text);
    folder.write("w.csv", text);
    auto read = read_run((folder.path / "run.yaml").string());
    INFO(listed(read.problems()));
    REQUIRE(read.ok());
    CHECK(read.value().base_dir == folder.path.string());
    CHECK(read.value().routing.kind == Routing::Kind::tokens_per_expert);
    CHECK(read.value().routing.tokens_per_expert == expected);
    CHECK(read.value().routing.tokens_per_expert_file == "w.csv");
  }
}

TEST_CASE("a file of tokens per expert that is wrong is a problem of the run file") {
  Folder folder("routing-bad");
  folder.write("run.yaml", kMinimal + "moe: {routing: {tokens_per_expert: w.csv}}\n");
  const auto problem = [&] {
    auto read = read_run((folder.path / "run.yaml").string());
    REQUIRE(read.problems().size() == 1);
    CHECK(read.problems()[0].line == 5);
    CHECK(read.problems()[0].key == "moe.routing");
    return to_string(read.problems()[0]);
  };
  says(problem(), "w.csv: moe.routing.tokens_per_expert: is not there");
  for (const auto& [text, why] :
       std::map<std::string, std::string>{{"", "sum above 0"},
                                          {"0\n0\n", "sum above 0"},
                                          {"1\nmany\n", "w.csv:2: "},
                                          {"1\n-1\n", "w.csv:2: "},
                                          {"1\nnan\n", "w.csv:2: "},
                                          {"0,1\n0,2\n", "expert 0 is given twice"},
                                          {"0,1\n2,2\n", "expert 1 is missing"},
                                          {"a,b\nc,d\nx\n", "(and 1 more)"},
                                          {"1e308\n1e308\n", "finite sum"}}) {
    INFO(text);
    folder.write("w.csv", text);
    says(problem(), why);
  }
  CHECK_FALSE(read_tokens_per_expert(folder.path.string(), "").ok());
}

TEST_CASE("every shipped run file is read without a problem") {
  int count = 0;
  for (const auto& entry :
       fs::directory_iterator(std::string(MOECAST_SOURCE_DIR) + "/configs/runs")) {
    INFO(entry.path());
    auto read = read_run(entry.path().string());
    INFO(listed(read.problems()));
    REQUIRE(read.ok());
    const Run& run = read.value();
    const int dp = run.layout.dp(run.gpus);
    CHECK(dp * run.layout.tp * run.layout.cp * run.layout.pp == run.gpus);
    CHECK(run.layout.edp(run.gpus) * run.layout.etp * run.layout.ep * run.layout.pp == run.gpus);
    CHECK(run.global_batch_size % (dp * run.layout.micro_batch_size) == 0);
    ++count;
  }
  CHECK(count >= 4);
}
