// Inputs of Megatron in the style of public recipes: what is read out of them, and what is said
// about the rest.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "catch.hpp"
#include "layout/megatron_import.hpp"

using namespace moecast;

namespace {

MegatronInput read(const std::string& text, const InputOptions& options = {}) {
  auto input = read_megatron_text(text, "train.sh", options);
  for (const Diagnostic& problem : input.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(input.ok());
  return input.take();
}

std::string problems_of(const std::string& text, const InputOptions& options = {}) {
  const auto input = read_megatron_text(text, "train.sh", options);
  std::string all;
  for (const Diagnostic& problem : input.problems()) all += to_string(problem) + "\n";
  return all;
}

std::string warnings_of(const MegatronInput& input) {
  std::string all;
  for (const Diagnostic& warning : input.warnings) all += to_string(warning) + "\n";
  return all;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

int line_of(const std::string& text, const std::string& part) {
  const auto at = static_cast<std::ptrdiff_t>(text.find(part));
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n'));
}

ImportedRun imported(const MegatronInput& input, const ImportOptions& options = {}) {
  auto run = import_run(input, options);
  for (const Diagnostic& problem : run.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(run.ok());
  return run.take();
}

/// In the style of Megatron-LM's examples/mixtral/train_mixtral_8x7b_distributed.sh.
const std::string kMixtral = R"(#!/bin/bash
# Runs Mixtral 8x7B
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
MASTER_ADDR=${MASTER_ADDR:-"localhost"}
NNODES=${SLURM_NNODES:-"8"}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
CHECKPOINT_PATH=$1

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --node_rank ${SLURM_NODEID:-"0"}
    --master_addr $MASTER_ADDR
)
MODEL_ARGS=(
    --use-mcore-models --disable-bias-linear
    --seq-length 4096 --max-position-embeddings 32768
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32
    --init-method-std 0.01 --attention-dropout 0.0 --hidden-dropout 0.0
    --normalization RMSNorm --position-embedding-type rope --swiglu
    --untie-embeddings-and-output-weights
    --group-query-attention --num-query-groups 8
    --no-masked-softmax-fusion --rotary-base 1000000
)
MOE_ARGS=(
    --num-experts 8 --moe-router-topk 2
    --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm --moe-token-dispatcher-type alltoall
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 2   # 32 / 4 / 2 chunks
    --expert-model-parallel-size 8
    --use-distributed-optimizer
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --bf16 --overlap-grad-reduce)
if [ -n "${WANDB_API_KEY}" ]; then
    LOGGING_ARGS+=(--wandb-project Mixtral)
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} ${MOE_ARGS[@]} ${TRAINING_ARGS[@]} \
    ${MODEL_PARALLEL_ARGS[@]} --save $CHECKPOINT_PATH "$@"
)";

}  // namespace

TEST_CASE("does a launch script with arrays give the run that it starts?") {
  const MegatronInput input = read(kMixtral);
  CHECK(input.kind == InputKind::megatron_lm);
  CHECK(input.gpus == 64);
  CHECK(input.config.env.at("CUDA_DEVICE_MAX_CONNECTIONS") == "1");
  CHECK(input.given.at("expert_model_parallel_size").line ==
        line_of(kMixtral, "--expert-model-parallel-size"));
  CHECK_FALSE(has(warnings_of(input), "no option that moecast knows"));
  CHECK(has(warnings_of(input), fmt::format("train.sh:{}", line_of(kMixtral, "if [ -n"))));
  ImportOptions options;
  options.system = "dgx-h100";
  const ImportedRun run = imported(input, options);
  CHECK(run.run.model == "mixtral-8x7b");
  CHECK(run.run.model_overrides.empty());
  CHECK(run.run.gpus == 64);
  CHECK(run.run.layout.pp == 4);
  CHECK(run.run.layout.vpp == 4);
  CHECK(run.run.layout.ep == 8);
  CHECK(run.run.layout.etp == 1);
  CHECK(run.run.layout.dispatcher == Dispatcher::alltoall);
  CHECK(run.run.layout.overlap_grad_reduce);
  CHECK_FALSE(run.run.layout.overlap_param_gather);  // Megatron-LM's default
  CHECK(run.run.layout.distributed_optimizer);
  CHECK(run.run.routing.kind == Routing::Kind::imbalance);  // a real router, and it is said
  CHECK(run.run.software.env.at("CUDA_DEVICE_MAX_CONNECTIONS") == "1");
}

TEST_CASE("is a model that does not ship described by the arguments themselves?") {
  std::string script = kMixtral;
  script.replace(script.find("--num-layers 32"), 15, "--num-layers 24 --vocab-size 50000");
  script.replace(script.find("--hidden-size 4096"), 18, "--hidden-size 3072");
  ImportOptions options;
  options.system = "dgx-h100";
  const ImportedRun run = imported(read(script), options);
  REQUIRE(run.model);
  CHECK(run.model->hidden_size == 3072);
  CHECK(run.model->layers.size() == 24);
  CHECK(run.model->vocab_size == 50000);
  CHECK(run.model->mixers.at(1).num_query_groups == 8);
  CHECK(run.model->mixers.at(1).qk_head_dim == 96);
  CHECK(run.model->moe.moe_ffn_hidden_size == 14336);
}

TEST_CASE("is a shipped model with fewer layers found, with its override?") {
  std::string script = kMixtral;
  script.replace(script.find("--num-layers 32"), 15, "--num-layers 8 --vocab-size 32000");
  ImportOptions options;
  options.system = "dgx-h100";
  const ImportedRun run = imported(read(script), options);
  CHECK(run.run.model == "mixtral-8x7b");
  CHECK(run.run.model_overrides == nlohmann::ordered_json({{"num_hidden_layers", 8}}));
}

TEST_CASE("does a YAML of arguments in the style of the MoE model zoo read like a command line?") {
  const std::string yaml = R"(ENV_VARS:
  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1
  NCCL_GRAPH_REGISTER: 0
MODEL_ARGS:
  --tensor-model-parallel-size: ${TP}
  --pipeline-model-parallel-size: ${PP}
  --pipeline-model-parallel-layout: Et*3|(tt|)*29m|L
  --expert-model-parallel-size: 64
  --expert-tensor-parallel-size: 1
  --sequence-parallel: true
  --disable-bias-linear: true
  --micro-batch-size: 1
  --global-batch-size: 8192
  --seq-length: 4096
  --num-layers: 61
  --hidden-size: 7168
  --ffn-hidden-size: 18432
  --num-attention-heads: 128
  --multi-latent-attention: true
  --q-lora-rank: 1536
  --kv-lora-rank: 512
  --qk-head-dim: 128
  --qk-pos-emb-head-dim: 64
  --v-head-dim: 128
  --qk-layernorm: true
  --swiglu: true
  --normalization: RMSNorm
  --untie-embeddings-and-output-weights: true
  --num-experts: 256
  --moe-layer-freq: ([0]*3+[1]*58)
  --moe-ffn-hidden-size: 2048
  --moe-shared-expert-intermediate-size: 2048
  --moe-router-topk: 8
  --moe-router-num-groups: 8
  --moe-router-group-topk: 4
  --moe-router-score-function: sigmoid
  --moe-router-enable-expert-bias: true
  --moe-token-dispatcher-type: flex
  --moe-flex-dispatcher-backend: hybridep
  --moe-hybridep-num-sms: 32
  --moe-router-force-load-balancing: true
  --recompute-granularity: selective
  --recompute-modules: mla_up_proj moe_act
  --mtp-num-layers: 1
  --finetune: false
  --cuda-graph-impl: transformer_engine
  --cuda-graph-scope: attn moe_router moe_preprocess
  --fp8-recipe: mxfp8
  --fp8-format: e4m3
  --bf16: true
)";
  CHECK(has(problems_of(yaml), "train.sh:5: --tensor-model-parallel-size: depends on ${TP}"));
  CHECK(has(problems_of(yaml), "--var PP=VALUE"));
  InputOptions options;
  options.variables = {{"TP", "2"}, {"PP", "16"}};
  const MegatronInput input = read(yaml, options);
  CHECK(input.kind == InputKind::megatron_yaml);
  CHECK(warnings_of(input).empty());
  ImportOptions cluster;
  cluster.system = "gb200-nvl72";
  cluster.gpus = 1024;
  const ImportedRun run = imported(input, cluster);
  const Layout& l = run.run.layout;
  CHECK(run.run.model == "deepseek-v3");
  CHECK(run.run.model_overrides.empty());
  CHECK(l.tp == 2);
  CHECK(l.pp == 16);
  CHECK(l.vpp == 2);  // 32 stages of the string
  CHECK(run.run.pipeline_model_parallel_layout == "Et*3|(tt|)*29m|L");
  CHECK(l.dispatcher == Dispatcher::hybridep);
  CHECK(l.dispatcher_num_sms == 32);
  CHECK(l.precision == Precision::mxfp8);
  CHECK(
      l.recompute_modules ==
      ModuleSet<RecomputeModule>{}.add(RecomputeModule::mla_up_proj).add(RecomputeModule::moe_act));
  CHECK(l.cuda_graph_impl == CudaGraphImpl::transformer_engine);
  CHECK(l.cuda_graph_scope.has(GraphModule::moe_preprocess));
  CHECK(run.run.routing.kind == Routing::Kind::force_balance);
  CHECK(run.run.software.env.at("NCCL_GRAPH_REGISTER") == "0");
}

TEST_CASE("do Bridge overrides read alike as lines, as nested YAML and behind Hydra's prefixes?") {
  const std::string lines =
      "model.tensor_model_parallel_size=2\nmodel.pipeline_model_parallel_size=4\n"
      "++model.virtual_pipeline_model_parallel_size=3\n+model.recompute_modules=[moe_act,layernorm]"
      "\n"
      "model.recompute_granularity=selective\nconfig_container.train.global_batch_size=512\n"
      "model.seq_length=4096\nmixed_precision=bf16_with_fp8_current_scaling_mixed\n"
      "comm_overlap.overlap_moe_expert_parallel_comm=true\n";
  const std::string yaml =
      "model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 4\n"
      "  virtual_pipeline_model_parallel_size: 3\n  recompute_modules: [moe_act, layernorm]\n"
      "  recompute_granularity: selective\n  seq_length: 4096\ntrain: {global_batch_size: 512}\n"
      "mixed_precision: bf16_with_fp8_current_scaling_mixed\n"
      "comm_overlap.overlap_moe_expert_parallel_comm: true\n";
  const MegatronInput a = read(lines), b = read(yaml);
  CHECK(a.kind == InputKind::bridge);
  CHECK(b.kind == InputKind::bridge);
  CHECK(a.config == b.config);
  CHECK(a.given.size() == 9);
  ImportOptions options;
  options.model = "qwen3-30b-a3b";
  options.system = "dgx-h100";
  options.gpus = 64;
  const Layout l = imported(a, options).run.layout;
  CHECK(l.tp == 2);
  CHECK(l.vpp == 3);
  CHECK(l.precision == Precision::fp8_tensorwise);
  CHECK(l.overlap_moe_expert_parallel_comm);
  CHECK_FALSE(l.delay_wgrad_compute);
  CHECK(l.sequence_parallel == Tristate::off);  // Bridge's default, with tp 2
}

TEST_CASE("do harness options set what the harness sets with them?") {
  const MegatronInput input = read(
      "python scripts/performance/setup_experiment.py --account me -m qwen -mr qwen3_30b_a3b "
      "-g h100 -ng 16 -c fp8_cs -tp 2 -pp 1 -ep 8 -et 1 -mb 2 -gb 1024 -sl 4096 -vp None \\\n"
      "  --moe_a2a_overlap true --moe_flex_dispatcher_backend hybridep "
      "--recompute_modules moe_act,layernorm --cuda_graph_impl transformer_engine "
      "--cuda_graph_scope attn,moe_router -E NVTE_FWD_LAYERNORM_SM_MARGIN=20 "
      "model.moe_permute_fusion=true");
  CHECK(input.kind == InputKind::harness);
  CHECK(warnings_of(input).empty());
  const ImportedRun run = imported(input);
  const Layout& l = run.run.layout;
  CHECK(run.run.model == "qwen3-30b-a3b");
  CHECK(run.run.system == "dgx-h100");
  CHECK(run.run.gpus == 16);
  CHECK(l.tp == 2);
  CHECK(l.sequence_parallel == Tristate::automatic);  // on, as tp is 2
  CHECK(l.delay_wgrad_compute);                       // --moe_a2a_overlap sets both
  CHECK(l.dispatcher == Dispatcher::hybridep);
  CHECK(l.dispatcher_num_sms == 32);
  CHECK(l.precision == Precision::fp8_tensorwise);
  CHECK(l.grad_dtype == DType::bf16);  // the recipes'
  CHECK(l.recompute_granularity == RecomputeGranularity::selective);
  CHECK(l.cuda_graph_scope.has(GraphModule::moe_router));
  CHECK(run.run.software.features.at("permute_fusion"));
  CHECK(run.run.software.env.at("NVTE_FWD_LAYERNORM_SM_MARGIN") == "20");
}

TEST_CASE("does Megatron-LM's ETP follow TP, and Bridge's not?") {
  const std::string sizes =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --num-experts 8 "
      "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 "
      "--seq-length 64 --global-batch-size 8 --bf16 --vocab-size 1000";
  ImportOptions options;
  options.system = "dgx-h100";
  options.gpus = 8;
  CHECK(imported(read(sizes), options).run.layout.etp == 2);
  options.model = "mixtral-8x7b";
  CHECK(imported(read("model.tensor_model_parallel_size=2\nmodel.expert_model_parallel_size=4\n"
                      "model.seq_length=64\ntrain.global_batch_size=8\n"),
                 options)
            .run.layout.etp == 1);
}

TEST_CASE("do uneven pipelines become the string that says the same?") {
  const std::string base =
      "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
      "--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm "
      "--disable-bias-linear --untie-embeddings-and-output-weights --num-experts 8 "
      "--seq-length 4096 --global-batch-size 64 --bf16 ";
  ImportOptions options;
  options.system = "dgx-h100";
  options.gpus = 32;
  const auto string_of = [&](const std::string& flags) {
    return imported(read(base + flags), options).run.pipeline_model_parallel_layout;
  };
  CHECK(string_of("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7 "
                  "--decoder-last-pipeline-num-layers 7") == "Et*7|t*9|t*9|t*7L");
  CHECK(string_of("--pipeline-model-parallel-size 17 --account-for-embedding-in-pipeline-split "
                  "--account-for-loss-in-pipeline-split") == "Et|(tt|)*15tL");
  CHECK(string_of("--pipeline-model-parallel-size 4").empty());
}

TEST_CASE("is an unknown option named, with the nearest one that is known?") {
  const MegatronInput input = read(
      "--tensor-model-parallel-size 2 --pipeline-model-paralel-size 4 "
      "--lr 1e-4 --tokenizer-type NullTokenizer");
  REQUIRE(input.warnings.size() == 1);
  CHECK(has(warnings_of(input), "did you mean '--pipeline-model-parallel-size'?"));
}

TEST_CASE("is a variable of more options that nobody sets left out, not taken as a value?") {
  const MegatronInput input = read(
      "--sequence-parallel ${MORE} --tensor-model-parallel-size 2 $MORE "
      "--recompute-modules moe_act $MORE");
  CHECK(input.config.sequence_parallel);
  CHECK(input.config.tensor_model_parallel_size == 2);
  CHECK(texts_of(input.config.recompute_modules) == std::vector<std::string>{"moe_act"});
  CHECK(input.warnings.size() == 3);
  CHECK(has(warnings_of(input), "--var MORE=VALUE"));
}

TEST_CASE("are wrong values refused all at once, each on its line?") {
  const std::string text = problems_of(
      "--tensor-model-parallel-size two\n--moe-router-topk 1.5\n"
      "--micro-batch-size\n--seq-length $SEQ\n");
  for (const char* place : {"train.sh:1", "train.sh:2", "train.sh:3", "train.sh:4"}) {
    INFO(text);
    CHECK(has(text, place));
  }
  CHECK(has(problems_of("echo hello\n"), "no command with options of Megatron"));
  CHECK(has(problems_of("--bf16", {"bridg", {}}), "did you mean 'bridge'?"));
}

TEST_CASE("does an import without a cluster ask for it, and say how to give it?") {
  const auto run =
      import_run(read("--num-layers 32 --hidden-size 4096 --num-attention-heads 32"), {});
  std::string all;
  for (const Diagnostic& problem : run.problems()) all += to_string(problem) + "\n";
  for (const char* part : {"--system NAME", "--gpus N", "train.seq_length", "vocab_size"}) {
    INFO(all);
    CHECK(has(all, part));
  }
}

TEST_CASE("do cut and random inputs never crash or hang the readers?") {
  std::mt19937 random(7);
  const std::vector<std::string> texts{
      kMixtral, "model.tensor_model_parallel_size=2\nmodel.recompute_modules=[moe_act]\n",
      "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --moe-layer-freq: ([0]*3+[1]*58)\n",
      "python setup_experiment.py -m a -mr b -g h100 -ng 8 -tp 2 model.x=y -E A=B\n"};
  const auto try_all = [](const std::string& text) {
    for (const std::string from : {"", "megatron-lm", "megatron-yaml", "bridge", "harness"}) {
      const auto input = read_megatron_text(text, "x", {from, {{"TP", "1"}}});
      if (input) import_run(input.value(), {"mixtral-8x7b", "dgx-h100", 8, {}});
    }
  };
  for (const std::string& text : texts) {
    for (std::size_t cut = 0; cut < text.size(); cut += 1 + text.size() / 60)
      try_all(text.substr(0, cut));
  }
  for (int round = 0; round < 400; ++round) {
    std::string text = texts[random() % texts.size()];
    for (unsigned k = 0; k < 1 + random() % 8; ++k)
      text[random() % text.size()] = static_cast<char>(random() % 256);
    try_all(text);
  }
}
