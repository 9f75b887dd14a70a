// The rows of model, cluster, train, layout and precision.
#include "layout/knob_values.hpp"

namespace moecast {
namespace {

// Bounds keep every product of three degrees, and of micro batch and GPUs, within an int.
constexpr int kMaxDegree = 1024;
constexpr int kMaxGpus = 1 << 20;
constexpr int kMaxMicroBatch = 1024;
constexpr int kMaxCount = 1 << 24;

std::vector<Knob> model_and_cluster() {
  return {
      knob({"model", "", "", "", "",
            "The model: a shipped name, a Hugging Face config.json, or a model YAML."},
           field(&Run::model), TextKind{.words = "name or path"}),
      knob({"cluster.system", "system", "", "", "",
            "The machine: a shipped name, a hardware file, or a calibrated profile."},
           field(&Run::system), TextKind{.words = "name or path"}),
      knob({"cluster.gpus", "gpus", "", "", "", "GPUs of the job (the world size)."},
           field(&Run::gpus), IntegerKind{1, kMaxGpus}),
      knob({"cluster.gpus_used_per_domain", "gpus_used_per_domain", "", "", "null",
            "GPUs that the job uses of each NVLink domain, such as 64 of 72; null = the system's."},
           field(&Run::gpus_used_per_domain), IntegerKind{1, kMaxGpus, 0}),
      knob({"cluster.system_overrides", "", "", "", "{}",
            "Figures of the system to replace or scale, such as {nic_bandwidth_gb_per_s: 100, "
            "hbm_bandwidth_gb_per_s: x1.5}: the keys of its hardware file."},
           field(&Run::system_overrides), OverridesKind{"map of figure: number or xFACTOR"}),
  };
}

std::vector<Knob> train() {
  return {
      knob({"train.seq_length", "seq", "--seq-length", "model.seq_length", "",
            "Tokens of one training sample, before context parallelism splits it."},
           field(&Run::seq_length), IntegerKind{1, kMaxCount}),
      knob({"train.micro_batch_size", "mbs", "--micro-batch-size", "train.micro_batch_size", "1",
            "Samples of one micro batch on one data-parallel rank."},
           field(&Layout::micro_batch_size), IntegerKind{1, kMaxMicroBatch}),
      knob({"train.global_batch_size", "gbs", "--global-batch-size", "train.global_batch_size", "",
            "Samples of one optimizer step over all data-parallel ranks."},
           field(&Run::global_batch_size), IntegerKind{1, kMaxCount}),
  };
}

Knob pipeline_layout() {
  Knob row = knob({"layout.pipeline_model_parallel_layout", "", "--pipeline-model-parallel-layout",
                   "model.pipeline_model_parallel_layout", "auto",
                   "Which layers each pipeline stage holds: auto = Megatron's even split where it "
                   "divides, else moecast balances; null = the even split or refusal; or a "
                   "Megatron string such as \"Et*3|(tt|)*29m|L\"."},
                  field(&Run::pipeline_model_parallel_layout),
                  TextKind{.null_is_empty = true, .words = "auto | Megatron layout string"});
  // Two fields hold it: what kind of split, and the string of an explicit one.
  row.set = [set_text = row.set](Run& run, const Value& value) {
    std::string problem = set_text(run, value);
    if (!problem.empty()) return problem;
    auto split = PipelineSplit::explicit_string;
    if (value.is_null()) split = PipelineSplit::megatron;
    if (value == "auto") split = PipelineSplit::automatic;
    if (split != PipelineSplit::explicit_string) run.pipeline_model_parallel_layout.clear();
    run.layout.pipeline_split = split;
    return problem;
  };
  row.get = [](const Run& run) {
    PipelineSplit split = run.layout.pipeline_split;
    return split == PipelineSplit::explicit_string ? Value(run.pipeline_model_parallel_layout)
                                                   : show_choice(enum_text(split));
  };
  return row;
}

std::vector<Knob> layout() {
  return {
      knob({"layout.tensor_model_parallel_size", "tp", "--tensor-model-parallel-size",
            "model.tensor_model_parallel_size", "1",
            "Ranks that split every attention and dense weight matrix."},
           field(&Layout::tp), IntegerKind{1, kMaxDegree}),
      knob({"layout.pipeline_model_parallel_size", "pp", "--pipeline-model-parallel-size",
            "model.pipeline_model_parallel_size", "1", "Ranks that split the layers."},
           field(&Layout::pp), IntegerKind{1, kMaxDegree}),
      knob({"layout.virtual_pipeline_model_parallel_size", "vpp",
            "--num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size",
            "null",
            "Model chunks of one pipeline rank; null or 1 = the schedule is not interleaved."},
           field(&Layout::vpp), IntegerKind{1, kMaxDegree, 1}),
      knob({"layout.context_parallel_size", "cp", "--context-parallel-size",
            "model.context_parallel_size", "1", "Ranks that split each sequence."},
           field(&Layout::cp), IntegerKind{1, kMaxDegree}),
      knob({"layout.expert_model_parallel_size", "ep", "--expert-model-parallel-size",
            "model.expert_model_parallel_size", "1", "Ranks that divide the experts among them."},
           field(&Layout::ep), IntegerKind{1, kMaxDegree}),
      knob({"layout.expert_tensor_parallel_size", "etp", "--expert-tensor-parallel-size",
            "model.expert_tensor_parallel_size", "1",
            "Ranks that split every expert's matrices (unset, Megatron-LM takes tp, Bridge 1)."},
           field(&Layout::etp), IntegerKind{1, kMaxDegree}),
      knob({"layout.microbatch_group_size_per_vp_stage", "",
            "--microbatch-group-size-per-virtual-pipeline-stage",
            "model.microbatch_group_size_per_vp_stage", "null",
            "Consecutive micro batches of one chunk in the interleaved schedule; null = pp."},
           field(&Layout::microbatch_group_size_per_vp_stage), IntegerKind{1, kMaxCount, 0}),
      pipeline_layout(),
      knob(
          {"layout.sequence_parallel", "", "--sequence-parallel", "model.sequence_parallel", "auto",
           "Splits norms and residuals along the sequence over the tp ranks; auto = when tp > 1."},
          field(&Layout::sequence_parallel), ChoiceKind<Tristate>{}),
  };
}

}  // namespace

std::vector<Knob> place_knobs() {
  std::vector<Knob> rows = model_and_cluster();
  for (auto section : {train(), layout()}) rows.insert(rows.end(), section.begin(), section.end());
  rows.push_back(knob({"precision", "", "--fp8-recipe", "mixed_precision", "bf16",
                       "Recipe of the matrix multiplications (and of the weights' storage, as "
                       "Bridge's mixed-precision recipe of that kind sets it).",
                       true},
                      field(&Layout::precision), ChoiceKind<Precision>{}));
  return rows;
}

}  // namespace moecast
