#include <fmt/format.h>

#include <algorithm>

#include "report/layout_words.hpp"
#include "report/report.hpp"
#include "report/table.hpp"

namespace moecast {
namespace {

constexpr int kEstimateWidth = 118;
using Align = Table::Align;

std::string heading(const std::string& title, const Style& style) {
  return "\n" + style.bold(title) + "\n";
}

const RankMemory* largest_of(const Estimate& e) {
  const auto at = static_cast<std::size_t>(e.largest_rank);
  return at < e.ranks.size() ? &e.ranks[at] : nullptr;
}

std::string memory_line(const Estimate& e, const Style& style) {
  const RankMemory* rank = largest_of(e);
  if (!rank) return "no ranks";
  const double spare = in_gib(e.usable - rank->peak_reserved);
  const std::string verdict = e.fits
                                  ? style.green(fmt::format("fits, {:.1f} GiB to spare", spare))
                                  : style.red(fmt::format("does NOT fit, {:.1f} GiB over", -spare));
  return fmt::format(
      "{:.1f} GiB allocated, {:.1f} reserved of {:.1f} usable ({:.1f} on the device): {}",
      in_gib(rank->peak), in_gib(rank->peak_reserved), in_gib(e.usable), in_gib(e.capacity),
      verdict);
}

std::string wall_line(const Estimate& e, const Style& style) {
  std::vector<std::string> savings;
  for (const auto& [name, saved] : e.ablation)
    savings.push_back(fmt::format("{} {}", name, short_seconds(saved.value)));
  std::string line = style.bold(to_string(e.wall));
  if (!savings.empty())
    line += "; a step would be shorter without: " + fmt::to_string(fmt::join(savings, ", "));
  return line;
}

std::string headline(const Estimate& e, const Style& style) {
  const Run& run = e.run;
  std::string text =
      style.bold(fmt::format("{} on {} x {}, {}", run.model, run.gpus, run.system,
                             to_string(run.layout.precision))) +
      fmt::format(", sequence {}, global batch {}\n\n", run.seq_length, run.global_batch_size);
  text += fmt::format("  Step time   {}  (p05 {} - p95 {})\n",
                      style.bold(short_seconds(e.step_time.value)),
                      short_seconds(e.step_time_p05.value), short_seconds(e.step_time_p95.value));
  text += fmt::format("  Throughput  {} TFLOPS/GPU, {} tokens/s/GPU, MFU {:.1f} %\n",
                      style.bold(fmt::format("{:.1f}", e.tflops_per_gpu)),
                      with_commas(e.tokens_per_s_per_gpu), e.mfu_pct);
  text += fmt::format("  Memory      {}\n", memory_line(e, style));
  text += fmt::format("  Wall        {}\n", wall_line(e, style));
  text += fmt::format(
      "  Model       {} parameters, {} active per token, {:.1f} model GFLOPs per token, {} on the "
      "largest rank\n",
      short_count(e.params_total), short_count(e.params_active), e.model_flops_per_token / 1e9,
      short_count(e.params_per_rank_max));
  if (e.max_imbalance_that_fits > 0) {
    text += fmt::format("  Imbalance   fits up to {:.2f} x the mean rows per expert rank\n",
                        e.max_imbalance_that_fits);
  }
  return text;
}

std::string layout_lines(const Estimate& e, const std::optional<PipelinePlan>& plan,
                         const Style& style) {
  const Run& run = e.run;
  const Layout& l = run.layout;
  const LayoutWords words = layout_words(run);
  std::string text = heading("Layout", style);
  text += fmt::format(
      "  TP {}  PP {}  VPP {}  CP {}  EP {}  ETP {}  DP {}  EDP {}   {} microbatches of {} x {} "
      "tokens\n",
      l.tp, l.pp, l.vpp, l.cp, l.ep, l.etp, data_parallel(run), expert_data_parallel(run),
      num_microbatches(run), l.micro_batch_size, run.seq_length);
  text += fmt::format("  dispatcher {}   overlap {}   recompute {}   offload {}   CUDA graph {}\n",
                      words.dispatcher, words.overlap, words.recompute, words.offload, words.graph);
  if (!run.pipeline_model_parallel_layout.empty()) {
    text +=
        fmt::format("  pipeline_model_parallel_layout {}\n", run.pipeline_model_parallel_layout);
  }
  if (plan && (plan->pp > 1 || plan->vpp > 1)) text += pipeline_drawing(*plan, "  ");
  return text;
}

std::string time_table(const Estimate& e, const Style& style) {
  const TimeBreakdown& t = e.time;
  const std::vector<std::pair<const char*, Seconds>> parts{
      {"compute", t.compute},
      {"expert communication, exposed", t.ep_comm_exposed},
      {"tensor communication, exposed", t.tp_comm_exposed},
      {"context communication, exposed", t.cp_comm_exposed},
      {"pipeline communication, exposed", t.pp_comm_exposed},
      {"data-parallel communication, exposed", t.dp_comm_exposed},
      {"pipeline bubble", t.pipeline_bubble},
      {"host, exposed", t.host_exposed},
      {"optimizer", t.optimizer}};
  const double step = e.step_time.value;
  const auto percent = [&](Seconds s) {
    return step > 0 ? fmt::format("{:.1f} %", 100 * s.value / step) : "-";
  };
  Table table({{"part", Align::left}, {"seconds"}, {"of step"}});
  Seconds sum;
  for (const auto& [name, time] : parts) {
    sum += time;
    table.add({name, fmt::format("{:.4f}", time.value), percent(time)});
  }
  table.add_line();
  table.add({"step", fmt::format("{:.4f}", sum.value), percent(sum)}, true);
  std::string text =
      heading(fmt::format("Time of one step (critical pipeline rank {})", e.critical_rank), style);
  text += table.to_text(style);
  if (t.ep_comm_total.value > 0) {
    text += fmt::format("  expert communication in all {:.4f} s, {:.4f} s of it hidden\n",
                        t.ep_comm_total.value, (t.ep_comm_total - t.ep_comm_exposed).value);
  }
  if (t.recompute.value > 0) {
    text +=
        fmt::format("  recomputation adds {:.4f} s (inside the parts above)\n", t.recompute.value);
  }
  return text;
}

std::string kernel_table(const Estimate& e, const Style& style) {
  const TimeBreakdown& t = e.time;
  Table table({{"kernels of compute", Align::left}, {"seconds"}, {"of compute"}});
  for (const auto& [name, time] :
       std::vector<std::pair<const char*, Seconds>>{{"grouped GEMM", t.grouped_gemm},
                                                    {"dense GEMM", t.dense_gemm},
                                                    {"attention", t.attention},
                                                    {"permute", t.permute},
                                                    {"memory-bound", t.memory_bound},
                                                    {"quantize", t.quantize}}) {
    const double share = t.compute.value > 0 ? 100 * time.value / t.compute.value : 0;
    table.add({name, fmt::format("{:.4f}", time.value), fmt::format("{:.1f} %", share)});
  }
  return "\n" + table.to_text(style);
}

std::string memory_table(const Estimate& e, const Style& style) {
  Table table({{"PP rank"},
               {"weights"},
               {"gradients"},
               {"optimizer"},
               {"activations"},
               {"dispatcher"},
               {"graph"},
               {"workspace"},
               {"allocated"},
               {"reserved"},
               {"host"},
               {"", Align::left}});
  const auto gib = [](Bytes b) { return fmt::format("{:.2f}", in_gib(b)); };
  const RankMemory* largest = largest_of(e);
  for (const RankMemory& r : e.ranks) {
    const bool marked = &r == largest;
    table.add({std::to_string(r.pp_rank), gib(r.weights), gib(r.gradients), gib(r.optimizer),
               gib(r.activations), gib(r.dispatcher), gib(r.cuda_graph), gib(r.workspace),
               gib(r.peak), gib(r.peak_reserved), gib(r.host), marked ? "<- largest" : ""},
              marked);
  }
  std::string text = heading("Memory per GPU (GiB)", style) + table.to_text(style);
  if (!largest) return text;
  std::string why = fmt::format("rank {} is the largest", largest->pp_rank);
  if (!e.largest_rank_reason.empty()) why += ": " + e.largest_rank_reason;
  if (why.find(largest->moment) == std::string::npos)
    why += "; its peak stands at: " + largest->moment;
  return text + "  " + wrapped(why, kEstimateWidth, 2) + "\n";
}

std::string group_table(const Estimate& e, const Style& style) {
  if (e.groups.empty()) return "";
  Table table({{"group", Align::left}, {"ranks"}, {"NVLink domains"}, {"GB/s per GPU"}});
  for (const GroupReport& g : e.groups) {
    table.add({g.name, std::to_string(g.size), std::to_string(g.domains_spanned),
               g.size > 1 ? fmt::format("{:.0f}", in_gb_per_s(g.bandwidth)) : "-"});
  }
  return heading("Groups", style) + table.to_text(style);
}

std::string warning_lines(const Estimate& e, const Style& style) {
  if (e.warnings.empty()) return "";
  std::string text = heading("Warnings", style);
  for (const Warning& w : e.warnings) {
    text += "  " + style.yellow("[" + w.rule + "]") + " " + wrapped(w.message, kEstimateWidth, 4) +
            "\n";
  }
  return text;
}

std::string advice_table(const Estimate& e, const Style& style) {
  if (e.advice.empty()) return "";
  Table table({{"one change (as --set takes it)", Align::left}, {"step time"}, {"memory"}});
  for (const Advice& a : e.advice) {
    table.add({a.change, fmt::format("{:+.1f} %", a.step_time_delta_pct),
               fmt::format("{:+.2f} GiB", a.memory_delta_gib)});
  }
  return heading("What would help", style) + table.to_text(style);
}

}  // namespace

std::string estimate_text(const Estimate& e, const std::optional<PipelinePlan>& plan,
                          const Style& style) {
  return headline(e, style) + layout_lines(e, plan, style) + time_table(e, style) +
         kernel_table(e, style) + memory_table(e, style) + group_table(e, style) +
         warning_lines(e, style) + advice_table(e, style);
}

}  // namespace moecast
