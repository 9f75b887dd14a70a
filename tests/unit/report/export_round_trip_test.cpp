// Runs that were really measured, through every kind of export and back. data/exact_rows.csv: rows
// of data whose layout is known exactly (the column source says from where);
// data/h200_arguments.csv: Megatron-LM argument lists of runs on H200 beside the layout that each
// was meant to have.
#include <algorithm>
#include <map>
#include <random>

#include "catch.hpp"
#include "layout/knobs.hpp"
#include "layout/megatron_export.hpp"
#include "layout/megatron_import.hpp"
#include "layout/run_file.hpp"
#include "moecast/model_io.hpp"
#include "moecast/stack.hpp"
#include "moecast/validation.hpp"
#include "report/rows.hpp"

using namespace moecast;

namespace {

std::vector<MeasuredRow> rows_of(const std::string& file) {
  auto rows = read_measured_rows(std::string(MOECAST_TEST_DIR) + "/unit/report/data/" + file, {});
  for (const Diagnostic& problem : rows.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(rows.ok());
  return rows.take();
}

/// Read once: a stack is a chain of files.
Software completed(const Software& asked) {
  static std::map<std::string, Stack> stacks;
  const std::string name = asked.container.empty() ? "current" : asked.container;
  if (stacks.count(name) == 0) stacks[name] = load_stack(name).take().stack;
  return complete_software(asked, stacks[name]);
}

Exported exported(const Run& run, ExportKind kind) {
  static std::map<std::string, ModelSpec> models;
  const std::string name = run.model + run.model_overrides.dump();
  if (models.count(name) == 0) models[name] = load_model(run.model, run.model_overrides, "").take();
  auto text = export_run(run, models[name], completed(run.software), kind);
  for (const Diagnostic& problem : text.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(text.ok());
  return text.take();
}

Run imported(const std::string& text, const ImportOptions& options = {}) {
  const auto input = read_megatron_text(text, "export", {});
  for (const Diagnostic& problem : input.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(input.ok());
  auto run = import_run(input.value(), options);
  for (const Diagnostic& problem : run.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(run.ok());
  return run.value().run;
}

/// Keys that two runs have differently.
std::vector<std::string> differences(const Run& a, const Run& b) {
  std::vector<std::string> keys;
  for (const Knob& knob : knob_table())
    if (knob.get(a) != knob.get(b)) keys.emplace_back(knob.key);
  return keys;
}

std::string without_comments(const std::string& text) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (text.compare(at, 10, "# moecast:") != 0) kept += text.substr(at, end - at);
    at = end;
  }
  return kept;
}

const std::vector<ExportKind> kKinds{ExportKind::megatron_lm, ExportKind::bridge,
                                     ExportKind::harness, ExportKind::dry_run};

}  // namespace

TEST_CASE("does every measured layout come back equal from every kind of export?") {
  int runs = 0;
  for (const MeasuredRow& row : rows_of("exact_rows.csv")) {
    if (!row.run) continue;
    ++runs;
    for (const ExportKind kind : kKinds) {
      const std::string text = exported(*row.run, kind).text;
      INFO(row.id << " " << to_string(kind) << "\n" << text);
      CHECK(differences(imported(text), *row.run).empty());
    }
  }
  CHECK(runs >= 55);
}

TEST_CASE("do the options alone carry every key that Megatron has a word for?") {
  // What the comments say is taken away: the keys below are the ones that may then differ.
  const std::vector<std::string> others{
      "software.container",
      "software.features",
      "cluster.gpus_used_per_domain",
      "layout.sequence_parallel",                     // auto, on and off have one flag
      "layout.pipeline_model_parallel_layout",        // auto becomes its string
      "layout.virtual_pipeline_model_parallel_size",  // follows from the string
      "model_overrides"};                             // of models whose layers have no options
  for (const MeasuredRow& row : rows_of("exact_rows.csv")) {
    if (!row.run) continue;
    for (const ExportKind kind :
         {ExportKind::megatron_lm, ExportKind::bridge, ExportKind::harness}) {
      ImportOptions options;
      options.model = row.run->model;
      options.system = row.run->system;
      options.gpus = row.run->gpus;
      const std::string text = without_comments(exported(*row.run, kind).text);
      for (const std::string& key : differences(imported(text, options), *row.run)) {
        INFO(row.id << " " << to_string(kind) << " " << key << "\n" << text);
        CHECK(std::find(others.begin(), others.end(), key) != others.end());
      }
    }
  }
}

TEST_CASE("do real argument lists give the layout that they were written for?") {
  const std::vector<std::string> others{
      "cluster.system",     "cluster.gpus",    "software.features",        "software.env",
      "software.container", "model_overrides", "layout.sequence_parallel", "moe.routing"};
  int lists = 0;
  for (const MeasuredRow& row : rows_of("h200_arguments.csv")) {
    const std::string arguments = rows::cell(row, "megatron_args");
    if (!row.run || arguments.empty()) continue;
    ++lists;
    INFO(row.id << "\n" << arguments);
    const auto input = read_megatron_text(arguments, "arguments.txt", {});
    REQUIRE(input.ok());
    CHECK(input.value().warnings.empty());  // every option is known
    ImportOptions options;
    options.system = "dgx-h200";
    options.gpus = row.run->gpus;
    const auto run = import_run(input.value(), options);
    REQUIRE(run.ok());
    for (const std::string& key : differences(run.value().run, *row.run)) {
      INFO(key);
      CHECK(std::find(others.begin(), others.end(), key) != others.end());
    }
    CHECK(run.value().run.layout.sp() == row.run->layout.sp());
    CHECK(run.value().run.software.container == "megatron-local-2026-08");
    // the same model, by whatever overrides
    const auto ours = load_model(run.value().run.model, run.value().run.model_overrides, "");
    const auto theirs = load_model(row.run->model, row.run->model_overrides, "");
    REQUIRE((ours.ok() && theirs.ok()));
    CHECK(count_params(ours.value()).total == count_params(theirs.value()).total);
  }
  CHECK(lists == 26);
}

TEST_CASE("are options that the run file keeps with the environment exported as options?") {
  const auto rows = rows_of("exact_rows.csv");
  const auto row = std::find_if(rows.begin(), rows.end(), [](const MeasuredRow& r) {
    return r.run && r.run->layout.dispatcher == Dispatcher::hybridep;
  });
  REQUIRE(row != rows.end());
  Run run = *row->run;
  for (const char* name : {"permute", "unpermute"})
    run.software.env[std::string("moe_hybridep_num_blocks_") + name] = "32";
  for (const ExportKind kind : kKinds) {
    const std::string text = exported(run, kind).text;
    INFO(text);
    CHECK(imported(text).software.env == run.software.env);
  }
  CHECK(
      exported(run, ExportKind::megatron_lm).text.find("--moe-hybridep-num-blocks-unpermute 32") !=
      std::string::npos);
}

TEST_CASE("do random runs come back equal from every kind of export?") {
  const std::vector<std::vector<std::string>> choices{
      {"model=mixtral-8x7b", "model=deepseek-v3", "model=llama3-8b", "model=gpt-oss-20b",
       "model=qwen3-next-80b-a3b", "model=nemotron-3-nano-30b-a3b"},
      {"cluster.system=dgx-h100", "cluster.system=gb200-nvl72", "cluster.system=dgx-h800"},
      {"cluster.gpus=8", "cluster.gpus=64", "cluster.gpus=24"},
      {"train.micro_batch_size=1", "train.micro_batch_size=3"},
      {"layout.tp=1", "layout.tp=2", "layout.tp=4"},
      {"layout.pp=1", "layout.pp=2", "layout.pp=4", "layout.pp=5"},
      {"layout.vpp=null", "layout.vpp=2"},
      {"layout.ep=1", "layout.ep=8"},
      {"layout.etp=1", "layout.etp=2"},
      {"layout.cp=1", "layout.cp=2"},
      {"layout.sequence_parallel=auto", "layout.sequence_parallel=false",
       "layout.sequence_parallel=true"},
      {"layout.microbatch_group_size_per_vp_stage=null",
       "layout.microbatch_group_size_per_vp_stage=8"},
      {"precision=bf16", "precision=fp8_delayed", "precision=fp8_tensorwise",
       "precision=fp8_blockwise", "precision=mxfp8", "precision=nvfp4"},
      {"moe.dispatcher=alltoall", "moe.dispatcher=allgather", "moe.dispatcher=deepep",
       "moe.dispatcher=hybridep"},
      {"moe.dispatcher_num_sms=null", "moe.dispatcher_num_sms=24"},
      {"moe.overlap_moe_expert_parallel_comm=true", "moe.delay_wgrad_compute=true",
       "moe.moe_shared_expert_overlap=true", "moe.capacity_factor=1.5"},
      {"moe.routing=force_balance", "moe.routing={imbalance: 1.7}", "moe.routing={imbalance: 1.2}"},
      {"recompute.granularity=none", "recompute.granularity=selective",
       "recompute.granularity=full"},
      {"recompute.modules=[]", "recompute.modules=[core_attn]",
       "recompute.modules=[moe_act, layernorm, mla_up_proj]"},
      {"recompute.method=null", "recompute.method=block", "recompute.method=uniform"},
      {"recompute.num_layers=null", "recompute.num_layers=3"},
      {"offload.activation_modules=[]", "offload.activation_modules=[expert_fc1, moe_act]"},
      {"offload.activation_fraction=1.0", "offload.activation_fraction=0.25"},
      {"offload.optimizer_fraction=0.0", "offload.optimizer_fraction=0.5"},
      {"offload.cpu_offloading_num_layers=0", "offload.cpu_offloading_num_layers=4"},
      {"cuda_graph.impl=none", "cuda_graph.impl=local", "cuda_graph.impl=transformer_engine",
       "cuda_graph.impl=full_iteration"},
      {"cuda_graph.scope=[]", "cuda_graph.scope=[attn, moe_router]"},
      {"optimizer.distributed=true", "optimizer.distributed=false"},
      {"optimizer.grad_dtype=fp32", "optimizer.grad_dtype=bf16"},
      {"optimizer.master_dtype=fp32", "optimizer.master_dtype=fp16"},
      {"optimizer.moment_dtype=fp32", "optimizer.moment_dtype=bf16", "optimizer.moment_dtype=fp8"},
      {"optimizer.precision_aware=false", "optimizer.precision_aware=true"},
      {"comm.overlap_grad_reduce=true", "comm.overlap_grad_reduce=false"},
      {"comm.overlap_param_gather=true", "comm.overlap_param_gather=false"},
      {"comm.tp_comm_overlap=false", "comm.tp_comm_overlap=true"},
      {"comm.cp_comm_type=p2p", "comm.cp_comm_type=a2a+p2p", "comm.cp_comm_type=all_gather"},
      {"fsdp=null", "fsdp={sharding: optim_grads_params}"},
      {"software.container=null", "software.container=26.04"},
      {"software.features={}", "software.features={permute_fusion: false, paged_stash: true}",
       "software.features={cpu_binding: true, fp8_param_gather: false}"},
      {"software.env={}", "software.env={CUDA_DEVICE_MAX_CONNECTIONS: 32, OURS: \"a b\"}"},
      {"software.transformer_engine=null", "software.transformer_engine=2.10"}};
  std::mt19937 random(20261130);
  int runs = 0;
  for (int round = 0; round < 40; ++round) {
    Run run;
    run.seq_length = 4096;
    run.global_batch_size = 768;
    for (const auto& values : choices)
      REQUIRE(apply_set(run, values[random() % values.size()]).empty());
    const auto model = load_model(run.model, run.model_overrides, "");
    REQUIRE(model.ok());
    if (!export_run(run, model.value(), run.software, ExportKind::bridge)) continue;  // no split
    ++runs;
    for (const ExportKind kind : kKinds) {
      const std::string text = exported(run, kind).text;
      INFO(to_string(kind) << "\n" << text);
      CHECK(differences(imported(text), run).empty());
    }
  }
  CHECK(runs > 20);
}
