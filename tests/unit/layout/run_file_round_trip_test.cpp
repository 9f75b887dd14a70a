// Properties: any run survives writing and reading; no text makes the reader throw.
#include <cstdint>
#include <iterator>

#include "layout/enum_names.hpp"
#include "layout/knobs.hpp"
#include "run_file_fixture.hpp"

using namespace moecast;

namespace {

/// Draws of any Run that the knobs can hold; plain arithmetic on mt19937, so the same everywhere.
class RandomRun {
 public:
  RandomRun(unsigned seed, std::string base_dir) : engine_(seed), base_dir_(std::move(base_dir)) {}

  Run draw() {
    Run run;
    run.base_dir = base_dir_;
    run.model = text();
    run.system = text();
    run.gpus = integer(1, 1 << 20);
    run.gpus_used_per_domain = integer(0, 72);
    if (coin()) run.system_overrides = {{text(), fraction()}, {text() + "2", "x" + text()}};
    run.seq_length = integer(1, 1 << 24);
    run.global_batch_size = integer(1, 1 << 24);
    run.capacity_factor = coin() ? 0 : fraction() + 0.5;
    place(run);
    memory(run.layout);
    training(run.layout);
    software(run);
    return run;
  }

 private:
  int integer(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<unsigned>(high - low + 1));
  }
  bool coin() { return integer(0, 1) == 1; }
  double fraction() { return static_cast<double>(engine_()) / 4294967295.0; }
  template <typename E>
  E one_of() {
    return static_cast<E>(integer(0, static_cast<int>(kEnumNames<E>.size()) - 1));
  }
  template <typename E>
  ModuleSet<E> some_of() {
    return {static_cast<std::uint16_t>(integer(0, (1 << kEnumNames<E>.size()) - 1))};
  }
  std::string text() {
    const std::vector<std::string> nasty = {"deepseek-v3",
                                            "2.10",
                                            "true",
                                            "null",
                                            "~",
                                            "a: b",
                                            "# no",
                                            "it's",
                                            "\"q\"",
                                            " lead",
                                            "tail ",
                                            "0x10",
                                            "1e3",
                                            "[a]",
                                            "{a: b}",
                                            "Et*3|(tt|)*29m|L",
                                            "\xC3\xA9t\xC3\xA9",
                                            "*a",
                                            "&a",
                                            "!t",
                                            "|",
                                            ">",
                                            "-",
                                            "- a",
                                            "?",
                                            "a\tb",
                                            "yes",
                                            "../x.yaml",
                                            "",
                                            "key: [",
                                            "%d"};
    const std::string& drawn = nasty[static_cast<std::size_t>(integer(0, int(nasty.size()) - 1))];
    return drawn.empty() ? "x" : drawn;
  }

  void place(Run& run) {
    Layout& layout = run.layout;
    for (int* degree : {&layout.tp, &layout.pp, &layout.vpp, &layout.cp, &layout.ep, &layout.etp,
                        &layout.micro_batch_size}) {
      *degree = integer(1, 1024);
    }
    layout.microbatch_group_size_per_vp_stage = integer(0, 9);
    layout.pipeline_split = one_of<PipelineSplit>();
    if (layout.pipeline_split == PipelineSplit::explicit_string) {
      run.pipeline_model_parallel_layout = text();
    }
    layout.sequence_parallel = one_of<Tristate>();
    layout.precision = one_of<Precision>();
    layout.dispatcher = one_of<Dispatcher>();
    layout.dispatcher_num_sms = integer(0, 132);
    layout.overlap_moe_expert_parallel_comm = coin();
    layout.delay_wgrad_compute = coin();
    layout.moe_shared_expert_overlap = coin();
    run.routing.kind = one_of<Routing::Kind>();
    if (run.routing.kind == Routing::Kind::imbalance) run.routing.imbalance = 1 + fraction();
    if (run.routing.kind == Routing::Kind::tokens_per_expert) {
      run.routing.tokens_per_expert_file = "weights.csv";
      run.routing.tokens_per_expert = {1, 2, 3};
    }
  }

  void memory(Layout& layout) {
    layout.recompute_granularity = one_of<RecomputeGranularity>();
    layout.recompute_method = one_of<RecomputeMethod>();
    layout.recompute_num_layers = integer(0, 1024);
    layout.recompute_modules = some_of<RecomputeModule>();
    layout.offload_modules = some_of<OffloadModule>();
    layout.offload_fraction = fraction();
    layout.optimizer_offload_fraction = fraction();
    layout.cpu_offloading_num_layers = integer(0, 1024);
    layout.cuda_graph_impl = one_of<CudaGraphImpl>();
    layout.cuda_graph_scope = some_of<GraphModule>();
  }

  void training(Layout& layout) {
    layout.distributed_optimizer = coin();
    layout.grad_dtype = coin() ? DType::fp32 : DType::bf16;
    layout.master_dtype = coin() ? DType::fp32 : DType::fp16;
    layout.moment_dtype = one_of<DType>();
    layout.precision_aware_optimizer = coin();
    layout.overlap_grad_reduce = coin();
    layout.overlap_param_gather = coin();
    layout.tp_comm_overlap = coin();
    layout.cp_comm_type = one_of<CpCommType>();
    layout.fsdp = one_of<FsdpSharding>();
  }

  void software(Run& run) {
    for (std::string* version :
         {&run.software.container, &run.software.pytorch, &run.software.transformer_engine,
          &run.software.megatron_core, &run.software.bridge}) {
      if (coin()) *version = text();
    }
    for (int i = integer(0, 3); i > 0; --i) run.software.features[text()] = coin();
    for (int i = integer(0, 3); i > 0; --i) run.software.env[text()] = text();
    for (int i = integer(0, 3); i > 0; --i) {
      run.model_overrides[text()] = coin() ? Value(text()) : Value{{"deep", {fraction(), nullptr}}};
    }
  }

  std::mt19937 engine_;
  std::string base_dir_;
};

}  // namespace

TEST_CASE("any run is read back from the file that it writes") {
  Folder folder("round-trip");
  folder.write("weights.csv", "1\n2\n3\n");
  const std::string file = (folder.path / "run.yaml").string();
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Run run = RandomRun(seed, folder.path.string()).draw();
    for (const std::string& text : {to_yaml(run_to_json(run)), run_to_json(run).dump()}) {
      auto doc = parse_document(text, file);
      INFO("seed " << seed << "\n" << text << listed(doc.problems()));
      REQUIRE(doc.ok());
      auto read = run_from_document(doc.value());
      INFO(listed(read.problems()));
      REQUIRE(read.ok());
      REQUIRE(run_to_json(read.value()) == run_to_json(run));
      REQUIRE(read.value() == run);
    }
  }
}

TEST_CASE("a cut or a garbled run file is answered, never thrown out of") {
  std::ifstream file(std::string(MOECAST_SOURCE_DIR) + "/configs/runs/deepseek-v3-gb200-256.yaml");
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  REQUIRE(whole.size() > 1000);
  std::mt19937 engine(7);
  int accepted = 0, refused = 0;
  for (std::size_t cut = 0; cut < whole.size(); cut += 13) {
    std::string garbled = whole;
    for (int i = 0; i < 3; ++i) {
      const char junk[] = "{}[]:,-\n \"'#9x";
      garbled[engine() % garbled.size()] = junk[engine() % (sizeof junk - 1)];
    }
    for (const std::string& text : {whole.substr(0, cut), garbled}) {
      INFO(text);
      Result<Run> read = Diagnostics{};
      REQUIRE_NOTHROW(read = parse(text));
      REQUIRE(read.ok() == read.problems().empty());
      (read.ok() ? accepted : refused) += 1;
    }
  }
  CHECK(accepted > 0);
  CHECK(refused > accepted / 10);
}
