#include "layout/run_file.hpp"
#include "report/report.hpp"

namespace moecast {
namespace {

Json item_json(const MemoryItem& item) {
  Json tree = {{"name", item.name}, {"gib", in_gib(item.bytes)}};
  if (item.count > 0) tree["count"] = item.count;
  if (!item.formula.empty()) tree["formula"] = item.formula;
  for (const MemoryItem& child : item.children) tree["children"].push_back(item_json(child));
  return tree;
}

Json rank_json(const RankMemory& rank, bool detail) {
  Json tree = {{"pp_rank", rank.pp_rank},
               {"params", rank.params},
               {"peak_gib", in_gib(rank.peak)},
               {"peak_reserved_gib", in_gib(rank.peak_reserved)},
               {"at_rest_gib", in_gib(rank.at_rest)},
               {"peak_first_step_gib", in_gib(rank.peak_first_step)},
               {"weights_gib", in_gib(rank.weights)},
               {"gradients_gib", in_gib(rank.gradients)},
               {"optimizer_gib", in_gib(rank.optimizer)},
               {"activations_gib", in_gib(rank.activations)},
               {"dispatcher_gib", in_gib(rank.dispatcher)},
               {"cuda_graph_gib", in_gib(rank.cuda_graph)},
               {"workspace_gib", in_gib(rank.workspace)},
               {"host_gib", in_gib(rank.host)},
               {"moment", rank.moment}};
  if (detail) tree["detail"] = item_json(rank.detail);
  return tree;
}

Json memory_json(const Estimate& e, bool detail) {
  Json ranks = Json::array();
  for (const RankMemory& rank : e.ranks) ranks.push_back(rank_json(rank, detail));
  const auto largest = static_cast<std::size_t>(e.largest_rank);
  const RankMemory none;
  const RankMemory& peak = largest < e.ranks.size() ? e.ranks[largest] : none;
  return {{"capacity_gib", in_gib(e.capacity)},
          {"usable_gib", in_gib(e.usable)},
          {"peak_gib", in_gib(peak.peak)},
          {"peak_reserved_gib", in_gib(peak.peak_reserved)},
          {"fits", e.fits},
          {"largest_rank", e.largest_rank},
          {"largest_rank_reason", e.largest_rank_reason},
          {"max_imbalance_that_fits", e.max_imbalance_that_fits},
          {"ranks", ranks}};
}

Json time_json(const TimeBreakdown& t) {
  return {{"compute_s", t.compute.value},
          {"ep_comm_total_s", t.ep_comm_total.value},
          {"ep_comm_exposed_s", t.ep_comm_exposed.value},
          {"tp_comm_exposed_s", t.tp_comm_exposed.value},
          {"cp_comm_exposed_s", t.cp_comm_exposed.value},
          {"pp_comm_exposed_s", t.pp_comm_exposed.value},
          {"dp_comm_exposed_s", t.dp_comm_exposed.value},
          {"pipeline_bubble_s", t.pipeline_bubble.value},
          {"host_exposed_s", t.host_exposed.value},
          {"optimizer_s", t.optimizer.value},
          {"recompute_s", t.recompute.value}};
}

Json kernels_json(const TimeBreakdown& t) {
  return {{"grouped_gemm_s", t.grouped_gemm.value}, {"dense_gemm_s", t.dense_gemm.value},
          {"attention_s", t.attention.value},       {"permute_s", t.permute.value},
          {"memory_bound_s", t.memory_bound.value}, {"quantize_s", t.quantize.value}};
}

Json groups_json(const std::vector<GroupReport>& groups) {
  Json list = Json::array();
  for (const GroupReport& group : groups) {
    list.push_back({{"name", group.name},
                    {"size", group.size},
                    {"domains_spanned", group.domains_spanned},
                    {"bandwidth_gb_per_s", in_gb_per_s(group.bandwidth)}});
  }
  return list;
}

}  // namespace

Json estimate_json(const Estimate& e, bool memory_detail) {
  Json warnings = Json::array(), advice = Json::array(), ablation = Json::object();
  for (const Warning& w : e.warnings)
    warnings.push_back({{"rule", w.rule}, {"message", w.message}});
  for (const Advice& a : e.advice) {
    advice.push_back({{"change", a.change},
                      {"step_time_delta_pct", a.step_time_delta_pct},
                      {"memory_delta_gib", a.memory_delta_gib}});
  }
  for (const auto& [wall, saved] : e.ablation) ablation[wall + "_free_saves_s"] = saved.value;
  return {{"schema", "moecast/estimate@1"},
          {"run", run_to_json(e.run)},
          {"step_time_s", e.step_time.value},
          {"step_time_s_p05", e.step_time_p05.value},
          {"step_time_s_p95", e.step_time_p95.value},
          {"tflops_per_gpu", e.tflops_per_gpu},
          {"tokens_per_s_per_gpu", e.tokens_per_s_per_gpu},
          {"mfu_pct", e.mfu_pct},
          {"model_flops_per_token", e.model_flops_per_token},
          {"params",
           {{"total", whole_number(e.params_total)},
            {"active", whole_number(e.params_active)},
            {"per_rank_max", whole_number(e.params_per_rank_max)}}},
          {"memory", memory_json(e, memory_detail)},
          {"wall", to_string(e.wall)},
          {"ablation", ablation},
          {"critical_pp_rank", e.critical_rank},
          {"time", time_json(e.time)},
          {"kernels", kernels_json(e.time)},
          {"groups", groups_json(e.groups)},
          {"warnings", warnings},
          {"advice", advice}};
}

}  // namespace moecast
