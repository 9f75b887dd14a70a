/// One measured row as a run.
#include <array>

#include <fmt/format.h>

#include "layout/enum_names.hpp"
#include "moecast/cluster.hpp"
#include "moecast/stack.hpp"
#include "report/rows.hpp"
#include "report/rows_inputs.hpp"

namespace moecast::rows {
namespace {

using Missing = std::vector<std::string>;

/// A size that a forecast cannot do without.
int size(const MeasuredRow& row, const std::string& column, Missing& missing) {
  const std::string text = cell(row, column);
  if (const auto value = positive_integer(text)) return *value;
  if (!has_column(row, column)) return 1;
  missing.push_back(
      text.empty() ? column : fmt::format("{} ('{}' is not a whole number above 0)", column, text));
  return 0;
}

/// A size with a default for the empty cell.
int size_or(MeasuredRow& row, const std::string& column, int fallback) {
  const std::string text = cell(row, column);
  if (const auto value = positive_integer(text)) return *value;
  if (!text.empty()) {
    row.notes.push_back(
        fmt::format("{}: '{}' is not a whole number above 0; {} assumed", column, text, fallback));
  }
  return fallback;
}

bool flag(MeasuredRow& row, const std::string& column) {
  const std::string text = cell(row, column);
  if (!text.empty() && text != "True" && text != "False") {
    row.notes.push_back(fmt::format("{}: '{}' is not known; False assumed", column, text));
  }
  return text == "True";
}

/// When one of tp, pp and cp is not stated, gpus = tp pp cp dp gives it.
void derive_one_size(MeasuredRow& row, const Run& run, int& tp, int& pp, int& cp) {
  const auto dp = positive_integer(cell(row, "dp"));
  const std::array<std::pair<const char*, int*>, 3> sizes{{{"tp", &tp}, {"pp", &pp}, {"cp", &cp}}};
  int product = dp.value_or(0), unknown = 0;
  for (const auto& [name, value] : sizes) *value == 0 ? ++unknown : product *= *value;
  if (unknown != 1 || product <= 0 || run.gpus % product != 0) return;
  for (const auto& [name, value] : sizes) {
    if (*value != 0 || run.gpus / product == 0) continue;
    *value = run.gpus / product;
    row.notes.push_back(fmt::format("{} {} follows from the number of GPUs and dp", name, *value));
  }
}

void read_sizes(MeasuredRow& row, Run& run, Missing& missing) {
  run.gpus = size(row, "num_gpus", missing);
  run.seq_length = size(row, "seq_len", missing);
  run.global_batch_size = size(row, "gbs", missing);
  Layout& layout = run.layout;
  layout.micro_batch_size = size_or(row, "mbs", 1);
  if (cell(row, "mbs").empty())
    row.notes.push_back("micro batch size not stated: 1 assumed, the recipes' default");
  layout.vpp = size_or(row, "vpp", 1);
  layout.etp = size_or(row, "etp", 1);
  Missing unknown;
  layout.tp = size(row, "tp", unknown);
  layout.pp = size(row, "pp", unknown);
  layout.cp = size(row, "cp", unknown);
  derive_one_size(row, run, layout.tp, layout.pp, layout.cp);
  if (layout.tp == 0 || layout.pp == 0 || layout.cp == 0)
    missing.insert(missing.end(), unknown.begin(), unknown.end());
}

void read_dispatch(MeasuredRow& row, Run& run) {
  // What the recipes set where a table does not say; Megatron's own default is the backend's.
  constexpr int kHybridEpSms = 32, kDeepEpSms = 20;
  Layout& layout = run.layout;
  const std::string text = cell(row, "dispatcher");
  const auto known = enum_from_text<Dispatcher>(text);
  layout.dispatcher = known.value_or(Dispatcher::alltoall);
  if (!known) {
    row.notes.push_back(fmt::format("dispatcher {}: alltoall assumed",
                                    text.empty() ? "not stated" : "'" + text + "' is not known"));
  }
  if (layout.dispatcher == Dispatcher::hybridep)
    layout.dispatcher_num_sms = size_or(row, "dispatcher_sms", kHybridEpSms);
  if (layout.dispatcher == Dispatcher::deepep)
    layout.dispatcher_num_sms = size_or(row, "dispatcher_sms", kDeepEpSms);
}

void read_moe(MeasuredRow& row, Run& run, Missing& missing) {
  run.layout.ep = size(row, "ep", missing);
  read_dispatch(row, run);
  run.layout.overlap_moe_expert_parallel_comm =
      cell(row, "ep_overlap") != "DualPipe" && flag(row, "ep_overlap");
  run.layout.delay_wgrad_compute = flag(row, "delay_wgrad");
  run.layout.moe_shared_expert_overlap = flag(row, "shared_expert_overlap");
  read_routing(row, run);
}

void read_task(MeasuredRow& row, Missing& missing) {
  const std::string task = cell(row, "task");
  if (task == "LoRA" || task == "VLM") {
    missing.push_back(task + " runs are not modelled");
  } else if (task == "SFT") {
    row.notes.push_back("SFT is forecast as a pre-training step");
  } else if (!task.empty() && task != "pretrain") {
    row.notes.push_back(
        fmt::format("task '{}' is not known: forecast as a pre-training step", task));
  }
  if (cell(row, "ep_overlap") == "DualPipe")
    missing.push_back("the DualPipe schedule is not modelled");
}

void read_machine(MeasuredRow& row, Run& run, Missing& missing) {
  run.system = cell(row, "system");
  const auto& system = read_once(run.system, [&] { return load_system(run.system); });
  if (!system) {
    missing.push_back(
        fmt::format("system '{}' ({})", run.system, system.problems().front().message));
    return;
  }
  const int domain = size_or(row, "gpus_per_nvlink_domain", system.value().gpus_per_nvlink_domain);
  if (domain < system.value().gpus_per_nvlink_domain) run.gpus_used_per_domain = domain;
  if (domain > system.value().gpus_per_nvlink_domain) {
    row.notes.push_back(
        fmt::format("gpus_per_nvlink_domain {} is more than the system has", domain));
  }
}

void read_software(MeasuredRow& row, Run& run) {
  const std::string release = cell(row, "release");
  const auto stack = [](const std::string& name) -> const Result<StackMatch>& {
    return read_once(name, [&] { return load_stack(name); });
  };
  const Result<StackMatch>* match = &stack(release);
  if (*match && !release.empty()) run.software.container = release;
  if (*match && !match->value().exact) {
    row.notes.push_back(fmt::format("release '{}' is read as {}, the nearest by date", release,
                                    match->value().stack.name));
  }
  if (!*match) {
    row.notes.push_back(
        fmt::format("release '{}' is not a known stack: the newest is used", release));
    match = &stack("current");
  }
  read_features(row, run,
                *match ? match->value().stack.software.features : std::map<std::string, bool>{});
}

/// What must have been on for the run to be possible, though no column says so.
void complete_from_evidence(MeasuredRow& row, Run& run) {
  Layout& l = run.layout;
  const bool lower = l.master_dtype != DType::fp32 || l.moment_dtype != DType::fp32;
  if (lower && !l.precision_aware_optimizer) {
    l.precision_aware_optimizer = true;
    row.notes.push_back("optimizer states below fp32: precision-aware optimizer assumed");
  }
  const auto& features = run.software.features;
  if (l.cuda_graph_impl == CudaGraphImpl::full_iteration && !features.contains("paged_stash")) {
    run.software.features["static_dispatch"] = true;
    row.notes.push_back("full-iteration graph: static dispatch assumed");
  }
}

/// SimuMax's harness (releases "v1.x") runs context parallelism by all-to-all; Megatron's default
/// is p2p.
void read_context_exchange(const MeasuredRow& row, Run& run) {
  if (cell(row, "release").rfind("v1.", 0) == 0) run.layout.cp_comm_type = CpCommType::a2a;
}

void read_layout_columns(MeasuredRow& row, Run& run) {
  if (const std::string sp = cell(row, "sequence_parallel"); sp == "True" || sp == "False") {
    run.layout.sequence_parallel = sp == "True" ? Tristate::on : Tristate::off;
  }
  run.layout.tp_comm_overlap = flag(row, "tp_comm_overlap");
  read_cuda_graph(row, run);
  read_recompute(row, run);
  read_offload(row, run);
  read_fsdp(row, run);
  read_context_exchange(row, run);
  read_optimizer(row, run);
  complete_from_evidence(row, run);
}

}  // namespace

void express(MeasuredRow& row, const std::string& base_dir) {
  Missing missing;
  Run run;
  run.base_dir = base_dir;
  read_task(row, missing);
  const auto model = read_model(row, run, missing);
  read_machine(row, run, missing);
  read_sizes(row, run, missing);
  read_precision(row, run, missing);
  read_software(row, run);
  read_layout_columns(row, run);
  if (model && model->moe.num_moe_experts > 0) read_moe(row, run, missing);
  if (missing.empty() && model) {
    read_pipeline(row, run, *model);
    row.run = std::move(run);
    return;
  }
  row.unsupported = fmt::format("not stated or not modelled: {}", fmt::join(missing, ", "));
}

}  // namespace moecast::rows
