#include "report/rows.hpp"

#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "temp_dir.hpp"

using namespace moecast;

namespace {

std::vector<MeasuredRow> published(const std::vector<std::string>& where = {}) {
  auto rows =
      read_measured_rows(std::string(MOECAST_TEST_DIR) + "/unit/report/data/rows.csv", where);
  for (const auto& p : rows.problems()) UNSCOPED_INFO(to_string(p));
  REQUIRE(rows.ok());
  return rows.take();
}

MeasuredRow row(const std::string& id) {
  auto rows = published({"id=" + id});
  if (rows.empty()) {
    const std::string shipped = std::string(MOECAST_SOURCE_DIR) + "/hwdb/measured/";
    rows = read_measured_rows(shipped + "training_steps.csv", {"id=" + id}).take();
  }
  REQUIRE(rows.size() == 1);
  return rows.front();
}

Run measured_run(const std::string& id) {
  const MeasuredRow found = row(id);
  INFO(found.unsupported);
  REQUIRE(found.run);
  return *found.run;
}

bool noted(const MeasuredRow& r, const std::string& part) {
  return std::any_of(r.notes.begin(), r.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

/// A row of the columns given, as the reader would hand it over.
MeasuredRow made(std::map<std::string, std::string> columns) {
  MeasuredRow r;
  r.columns = std::move(columns);
  rows::express(r, "");
  return r;
}

std::map<std::string, std::string> qwen() {
  return {{"id", "x"},
          {"model", "qwen3-30b-a3b"},
          {"system", "dgx-h100"},
          {"num_gpus", "16"},
          {"precision", "bf16"},
          {"seq_len", "4096"},
          {"mbs", "1"},
          {"gbs", "512"},
          {"tp", "1"},
          {"pp", "1"},
          {"cp", "1"},
          {"ep", "16"},
          {"dispatcher", "hybridep"},
          {"force_balance", "True"}};
}
MeasuredRow qwen_with(const std::string& column, const std::string& value) {
  auto columns = qwen();
  columns[column] = value;
  return made(columns);
}

}  // namespace

TEST_CASE("a recipe row of Megatron-Bridge becomes the run of that recipe") {
  const Run run = measured_run("mb26.08-dsv3-gb300-256-mxfp8");
  CHECK(run.model == "deepseek-v3");
  CHECK(run.system == "gb300-nvl72");
  CHECK(run.gpus == 256);
  CHECK(run.global_batch_size == 4096);
  CHECK(run.pipeline_model_parallel_layout == "Et*4|(t*4|)*14tmL");
  const Layout& layout = run.layout;
  CHECK(layout.pipeline_split == PipelineSplit::explicit_string);
  CHECK((layout.tp == 1 && layout.pp == 2 && layout.vpp == 8 && layout.ep == 32 &&
         layout.dp(run.gpus) == 128));
  CHECK(layout.precision == Precision::mxfp8);
  CHECK(layout.dispatcher == Dispatcher::hybridep);
  CHECK(layout.dispatcher_num_sms == 32);
  CHECK((layout.overlap_moe_expert_parallel_comm && layout.delay_wgrad_compute));
  CHECK(layout.cuda_graph_impl == CudaGraphImpl::full_iteration);
  CHECK(layout.precision_aware_optimizer);
  CHECK((layout.moment_dtype == DType::bf16 && layout.grad_dtype == DType::bf16 &&
         layout.master_dtype == DType::fp32));
  CHECK(run.routing.kind == Routing::Kind::force_balance);
  CHECK(run.software.container == "26.08");
  for (const char* on : {"fused_grouped_mlp", "paged_stash", "fp8_attention", "fp8_output_proj",
                         "fp8_param_gather", "te_cross_entropy"}) {
    CAPTURE(on);
    CHECK(run.software.features.at(on));
  }
  CHECK(run.software.env.at("CUDA_DEVICE_MAX_CONNECTIONS") == "32");
  CHECK(run.software.env.at("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN") == "32");
  CHECK(run.software.env.at("moe_expert_rank_capacity_factor") == "1.5");
  CHECK(run.model_overrides.empty());
}

TEST_CASE("embedding and loss as slots become an explicit layout string") {
  // 94 layers + 2 slots over PP8 VPP4: 3 each; over PP8 VPP3: 4 each. Llama 405B: 126 + 2 over 128
  // stages.
  CHECK(measured_run("mb26.04.01-q235b-h100-256-fp8").pipeline_model_parallel_layout ==
        "Ett|(t*3|)*30ttL");
  CHECK(measured_run("mb26.08-q235b-gb200-256-mxfp8").pipeline_model_parallel_layout ==
        "Et*3|(t*4|)*22t*3L");
  CHECK(measured_run("mb26.06-llama405b-gb200-256-mxfp8").pipeline_model_parallel_layout ==
        "E|(t|)*126L");
}

TEST_CASE("slot layouts count only what is asked for, and give up where slots do not divide") {
  ModelSpec model;
  model.layers.resize(7);
  CHECK(rows::slot_layout(model, 2, 2, true, false) == "Et|tt|tt|ttL");
  CHECK(rows::slot_layout(model, 4, 2, false, true) == "Et|(t|)*6L");
  CHECK(rows::slot_layout(model, 2, 2, true, true).empty());
  model.mtp_num_layers = 1;
  CHECK(rows::slot_layout(model, 2, 1, true, false) == "Et*3|t*4mL");
}

TEST_CASE("a layout without MTP layers drops the stage letter, the model's MTP is overridden") {
  const Run run = measured_run("mb25.11-dsv3-gb300-256-mxfp8");
  CHECK(run.model_overrides == nlohmann::ordered_json{{"num_nextn_predict_layers", 0}});
  CHECK(run.layout.pipeline_split == PipelineSplit::automatic);
  CHECK(noted(row("mb25.11-dsv3-gb300-256-mxfp8"), "balanced"));
  auto columns = qwen();
  columns["pp"] = "2";
  columns["pipeline_layout"] = "Et*24|t*24mL";
  const auto dropped = made(columns);
  REQUIRE(dropped.run);
  CHECK(dropped.run->pipeline_model_parallel_layout == "Et*24|t*24L");
}

TEST_CASE("shortened models carry their layers and dense layers as overrides") {
  const Run proxy = measured_run("simumax-deepseekv3_l4_tp1_ep8_pp1_dp8_mbc4");
  CHECK(proxy.model_overrides.at("num_hidden_layers") == 4);
  CHECK(proxy.model_overrides.at("first_k_dense_replace") == 1);  // "1 dense layer" in the notes
  const Run h200 = measured_run("h200-g1-03");
  CHECK(h200.model_overrides.at("n_routed_experts") == 32);
  CHECK(h200.model_overrides.at("num_hidden_layers") == 1);
  CHECK_FALSE(h200.layout.distributed_optimizer);
  CHECK(h200.layout.grad_dtype == DType::fp32);
  CHECK(h200.software.features.at("grouped_mm"));
  CHECK_FALSE(h200.software.features.at("te_cross_entropy"));
}

TEST_CASE("environment variables stated only in the notes reach the run") {
  CHECK(measured_run("mcore6311-ovl-rc-c32").software.env.at("CUDA_DEVICE_MAX_CONNECTIONS") ==
        "32");
  CHECK(measured_run("mcore6311-base").software.env.empty());
  const auto chunks = measured_run("q35-chunk128").software.env;
  CHECK(chunks.at("NUM_OF_TOKENS_PER_CHUNK_DISPATCH_API") == "128");
  CHECK(chunks.at("NUM_OF_TOKENS_PER_CHUNK_COMBINE_API") == "128");
  const auto blocks = measured_run("q35-unpermute32").software.env;
  CHECK(blocks.at("moe_hybridep_num_blocks_unpermute") == "32");
  CHECK(blocks.count("NUM_OF_TOKENS_PER_CHUNK_COMBINE_API") == 0);  // a campaign of its own
  const auto combine = [](const char* id) {
    return measured_run(id).software.env.at("NUM_OF_TOKENS_PER_CHUNK_COMBINE_API");
  };
  CHECK(combine("skill-q30b-final") == "64");
  CHECK(combine("skill-q30b-ovl-on") == "128");  // what Bridge's launchers set
}

TEST_CASE("what a row leaves empty is taken from its recipe, and said; what it states stands") {
  const MeasuredRow campaign = row("q35-sharedovl");
  REQUIRE(campaign.run);
  CHECK(campaign.run->layout.moment_dtype == DType::bf16);
  CHECK(campaign.run->layout.grad_dtype == DType::bf16);
  CHECK(noted(campaign, "perf_recipes/qwen/h100/qwen35.py"));
  CHECK(noted(campaign, "optimizer_dtype_notes=precision_aware=True"));
  CHECK_FALSE(noted(campaign, "recompute_modules"));  // stated
  const MeasuredRow no_recipe = row("skill-nano-rc-moe");
  CHECK_FALSE(noted(no_recipe, "as its recipe has it"));
  const MeasuredRow whole = row("gh5356-q30b-b200-oom");  // states neither sizes nor layout
  REQUIRE(whole.run);
  CHECK(whole.run->layout.ep == 8);
  CHECK(whole.run->layout.micro_batch_size == 4);
  CHECK(whole.run->software.features.at("paged_stash"));
  CHECK(whole.run->software.env.at("PYTORCH_CUDA_ALLOC_CONF") == "expandable_segments:True");
}

TEST_CASE("lists are filled from the recipe item by item") {
  MeasuredRow row;
  row.columns = {{"task", "pretrain"},    {"release", "26.06 dev"}, {"model", "qwen3-30b-a3b"},
                 {"system", "dgx-b200"},  {"precision", "mxfp8"},   {"features", "paged_stash=2"},
                 {"notes", "first words"}};
  rows::complete_from_recipe(row);
  CHECK(row.columns["features"] == "paged_stash=2; fused_grouped_mlp; fp8_attention");
  CHECK(row.columns["notes"] == "first words; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
}

TEST_CASE(
    "a row's recipe is found by its name, and natural routing fills a log's rank to the mean") {
  const MeasuredRow named = row("card-nemotron-3.5-lightning-pretrain-gb200");
  REQUIRE(named.run);
  CHECK(named.run->layout.ep == 8);
  CHECK(named.run->layout.cp == 1);  // of ..._pretrain_8k_config; ..._pretrain_config has 2
  CHECK(row("card-nemotron-3.5-lightning-pretrain-h100").run->layout.cp == 2);
  const ValidatedRow out = validate_rows({named}, {}).rows.front();
  CHECK(out.detail.find("mean of the rows") != std::string::npos);
  REQUIRE(out.memory_error_pct);
  CHECK(std::abs(*out.memory_error_pct) < 1);  // the fullest rank would hold 11 % more
}

TEST_CASE("one row that says when memory was read speaks for the rows of its source") {
  const std::vector<MeasuredRow> rows =
      read_measured_rows(std::string(MOECAST_SOURCE_DIR) + "/hwdb/measured/training_steps.csv", {})
          .take();
  const auto first_step = [&](const std::string& id) {
    return std::find_if(rows.begin(), rows.end(), [&](const MeasuredRow& r) { return r.id == id; })
        ->peak_of_first_step;
  };
  CHECK(first_step("q35-fp8-blockwise"));  // "memory after step 1"
  CHECK(first_step("q35-sharedovl"));      // says nothing of it
  CHECK_FALSE(first_step("q35-sms16"));    // no figure
  CHECK(first_step("skill-nano-rc-none"));
  CHECK_FALSE(first_step("skill-nano-rc-moe"));                    // "peak after iteration 2"
  const MeasuredRow out_of_memory = row("skill-q30b-actoff-oom");  // what it had when it failed
  CHECK_FALSE(out_of_memory.peak_mem_gib);
  CHECK(noted(out_of_memory, "memory ran out"));
}

TEST_CASE("a step or tokens per second are a throughput too, unless the job did not run through") {
  const MeasuredRow by_tokens = row("q35-sharedovl-conn2"), by_both = row("q35-sharedovl");
  REQUIRE(by_tokens.tflops_per_gpu);
  CHECK_THAT(*by_tokens.tflops_per_gpu / *by_both.tflops_per_gpu, WithinRel(22.341 / 22.937, 1e-3));
  const MeasuredRow unfinished = row("q35-fp8-blockwise-graph");
  CHECK_FALSE(unfinished.tflops_per_gpu);
  CHECK(noted(unfinished, "timed out"));
}

TEST_CASE("recompute, offload, graphs, FSDP and FP8 recipes are read in the words of the table") {
  const Layout zoo = measured_run("zoo-q235b-gb200-mx").layout;
  CHECK(zoo.recompute_granularity == RecomputeGranularity::selective);
  CHECK((zoo.recompute_modules.has(RecomputeModule::moe_act) &&
         zoo.recompute_modules.has(RecomputeModule::layernorm)));
  CHECK((zoo.offload_modules.has(OffloadModule::expert_fc1) &&
         zoo.offload_modules.has(OffloadModule::moe_act)));
  CHECK(zoo.cuda_graph_impl == CudaGraphImpl::transformer_engine);
  CHECK(
      (zoo.cuda_graph_scope.has(GraphModule::attn) && !zoo.cuda_graph_scope.has(GraphModule::mlp)));
  const Layout dense = measured_run("mb26.04-llama70b-gb300-64-fp8").layout;
  CHECK(dense.fsdp == FsdpSharding::optim_grads_params);
  CHECK(dense.cpu_offloading_num_layers == 20);
  CHECK(dense.precision == Precision::fp8_tensorwise);
  CHECK(measured_run("q35-fp8-blockwise").layout.precision == Precision::fp8_blockwise);
  CHECK(measured_run("mcore6311-ovl-rc-c32").layout.recompute_method == RecomputeMethod::uniform);

  const Layout block = qwen_with("recompute_modules", "full(block,5)").run->layout;
  CHECK((block.recompute_method == RecomputeMethod::block && block.recompute_num_layers == 5));
  CHECK(qwen_with("recompute_modules", "gdn")
            .run->layout.recompute_modules.has(RecomputeModule::gdn_norm_out));
  CHECK(qwen_with("offload_modules", "act:core_attn+opt_cpu:0.5")
            .run->layout.optimizer_offload_fraction == 0.5);
  CHECK(qwen_with("cuda_graph_scope", "attn+moe_router").run->layout.cuda_graph_impl ==
        CudaGraphImpl::transformer_engine);
}

TEST_CASE("words that are in no list are notes, and the rest of the cell still counts") {
  const auto graph = qwen_with("cuda_graph_scope", "transformer_engine (partial)");
  CHECK(graph.run->layout.cuda_graph_impl == CudaGraphImpl::none);
  CHECK(noted(graph, "cuda_graph_scope"));
  const auto offload =
      qwen_with("offload_modules", "act:expert_fc1+opt_state_offload(chunked,gpu-cpu)");
  CHECK(offload.run->layout.offload_modules.has(OffloadModule::expert_fc1));
  CHECK(noted(offload, "opt_state_offload"));
  CHECK(noted(qwen_with("features", "warp_drive=9;cross_entropy=te"), "warp_drive=9"));
  CHECK(noted(qwen_with("optimizer_dtype_notes", "m=int3"), "m=int3"));
  CHECK(noted(qwen_with("ep_overlap", "perhaps"), "ep_overlap"));
  CHECK(noted(qwen_with("release", "27.01"), "27.01"));
  CHECK(noted(qwen_with("release", "moe_dev"), "megatron-lm-2026-02"));
  CHECK(noted(qwen_with("recompute_modules", "full(zigzag)"), "full(uniform,1)"));
}

TEST_CASE("empty cells take the recipes' defaults, said in a note where they are a guess") {
  CHECK(qwen_with("dispatcher_sms", "").run->layout.dispatcher_num_sms == 32);
  CHECK(qwen_with("dispatcher", "deepep").run->layout.dispatcher_num_sms == 20);
  CHECK(qwen_with("dispatcher", "alltoall").run->layout.dispatcher_num_sms == 0);
  CHECK(noted(qwen_with("mbs", ""), "micro batch size"));
  CHECK(qwen_with("sequence_parallel", "").run->layout.sequence_parallel == Tristate::automatic);
  CHECK(qwen_with("sequence_parallel", "False").run->layout.sequence_parallel == Tristate::off);
  CHECK(qwen_with("force_balance", "token-drop (capacity factor)").run->capacity_factor == 1.0);
  CHECK(qwen_with("features", "capacity_factor=1.1").run->capacity_factor == 1.1);
  const auto natural = qwen_with("force_balance", "False");
  CHECK(natural.run->routing.kind == Routing::Kind::imbalance);
  CHECK(natural.run->routing.imbalance > 1.0);
  CHECK(noted(natural, "natural routing"));
}

TEST_CASE("one missing parallel size follows from the others, two do not") {
  auto columns = qwen();
  columns["pp"] = "";
  columns["dp"] = "8";
  CHECK(made(columns).run->layout.pp == 2);  // 16 GPUs = 1 x 1 x 8 x 2
  columns["cp"] = "";
  CHECK(made(columns).unsupported.find("pp, cp") != std::string::npos);
}

TEST_CASE("rows that cannot be forecast say what is missing") {
  CHECK(row("card-qwen3-30b-a3b-peft-h100").unsupported.find("LoRA") != std::string::npos);
  CHECK(row("dsv3-report-h800").unsupported.find("DualPipe") != std::string::npos);
  CHECK(row("gh1869-dsv3-b200-bf16-before").unsupported.find("gbs") != std::string::npos);
  CHECK(noted(row("skill-l70sft-mlp"), "SFT"));
  CHECK(qwen_with("model", "no-such-model").unsupported.find("no-such-model") != std::string::npos);
  CHECK(qwen_with("system", "dgx-z9").unsupported.find("dgx-z9") != std::string::npos);
  CHECK(qwen_with("precision", "").unsupported.find("precision") != std::string::npos);
  for (const char* column : {"num_gpus", "seq_len", "gbs", "tp", "ep"}) {
    for (const char* bad : {"", "0", "-4", "many", "1e3", "99999999999999"}) {
      CAPTURE(column, bad);
      const auto r = qwen_with(column, bad);
      CHECK_FALSE(r.run);
      CHECK(r.unsupported.find(column) != std::string::npos);
    }
  }
}

TEST_CASE("garbage in any column never throws: it is a note, a default or unsupported") {
  for (const auto& [column, value] : qwen()) {
    for (const char* garbage : {"(", "full(", "a:b:c", "=;=;", "+", ":", "\xFF\xFE", "full()",
                                "act:", "opt_cpu:x", "layers:-1", "megatron_fsdp:"}) {
      CAPTURE(column, garbage);
      CHECK_NOTHROW(qwen_with(column, garbage));
    }
  }
  for (const char* column :
       {"recompute_modules", "offload_modules", "cuda_graph_scope", "features",
        "optimizer_dtype_notes", "model_overrides", "layers_override", "mtp_layers", "fsdp",
        "notes", "pipeline_layout", "fp8_recipe", "gpus_per_nvlink_domain"}) {
    for (const char* garbage : {"(", "full(", "a:b:c", "=;=;", "+", ":", "\xFF\xFE", "full()",
                                "act:", "opt_cpu:x", "layers:-1", "x=[", "-3"}) {
      CAPTURE(column, garbage);
      CHECK_NOTHROW(qwen_with(column, garbage));
    }
  }
}

TEST_CASE("natural routing is less even the fewer experts a rank has") {
  const auto imbalance = [](const char* ep) {
    auto columns = qwen();
    columns["ep"] = ep;
    columns["force_balance"] = "False";
    return made(columns).run->routing.imbalance;
  };
  CHECK(imbalance("1") == 1.0);
  CHECK(imbalance("2") == 1.2);
  CHECK(imbalance("8") == 1.6);
  CHECK(imbalance("16") == 1.8);
}

TEST_CASE("filters keep and drop rows, and a wrong column is named") {
  CHECK(published().size() == 21);
  CHECK(published({"release=megatron-local-2026-08"}).size() == 3);
  CHECK(published({"release!=megatron-local-2026-08", "status!=ok"}).size() == 1);
  const auto wrong = read_measured_rows(
      std::string(MOECAST_TEST_DIR) + "/unit/report/data/rows.csv", {"sistem=x", "nonsense"});
  REQUIRE(wrong.problems().size() == 2);
  CHECK(wrong.problems()[0].hint.find("system") != std::string::npos);
}

TEST_CASE("columns may be absent: then Megatron's defaults hold; ids must be there once") {
  const test::TempDir folder;
  const auto lean = read_measured_rows(
      folder.file(
          "lean.csv",
          "id,model,system,num_gpus,seq_len,gbs,mine\na,llama3-8b,dgx-h100,8,8192,128,kept\n"),
      {});
  REQUIRE(lean.ok());
  INFO(lean.value()[0].unsupported);
  REQUIRE(lean.value()[0].run);
  CHECK(lean.value()[0].run->layout.tp == 1);
  CHECK(lean.value()[0].run->layout.precision == Precision::bf16);
  CHECK(lean.value()[0].columns.at("mine") == "kept");
  CHECK_FALSE(lean.value()[0].tflops_per_gpu);

  const auto twice = read_measured_rows(
      folder.file("twice.csv",
                  "id,model,system,num_gpus,seq_len,gbs\na,m,s,1,1,1\na,m,s,1,1,1\n,m,s,1,1,1\n"),
      {});
  REQUIRE(twice.problems().size() == 2);
  CHECK((twice.problems()[0].line == 3 && twice.problems()[1].line == 4));
}
