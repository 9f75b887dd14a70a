#include "estimate/advice.hpp"

#include <algorithm>

#include "estimate/legal.hpp"
#include "layout/knobs.hpp"

namespace moecast {
namespace {

/// Values worth trying for each knob, as --set takes them (JSON text).
struct Trial {
  const char* knob;
  std::vector<const char*> values;
  bool is_of_flex = false;  ///< only the flex dispatcher has it
};
const std::vector<Trial>& trials() {
  static const std::vector<Trial> list = {
      {"moe.overlap_moe_expert_parallel_comm", {"true", "false"}},
      {"moe.delay_wgrad_compute", {"true", "false"}},
      {"moe.moe_shared_expert_overlap", {"true"}},
      {"moe.dispatcher", {"\"alltoall\"", "\"deepep\"", "\"hybridep\""}},
      {"moe.dispatcher_num_sms", {"16", "24", "32"}, true},
      {"train.micro_batch_size", {"1", "2", "4", "8"}},
      {"layout.virtual_pipeline_model_parallel_size", {"1", "2", "4", "8"}},
      {"recompute",
       {R"({"granularity":"none","modules":[]})",
        R"({"granularity":"selective","modules":["moe_act"]})",
        R"({"granularity":"selective","modules":["layernorm","moe_act"]})",
        R"({"granularity":"selective","modules":["mla_up_proj"]})",
        R"({"granularity":"selective","modules":["mla_up_proj","layernorm","moe_act"]})",
        R"({"granularity":"full","method":"uniform","num_layers":1,"modules":[]})"}},
      {"cuda_graph",
       {R"({"impl":"transformer_engine","scope":["moe_router","moe_preprocess"]})",
        R"({"impl":"transformer_engine","scope":["attn","moe_router","moe_preprocess"]})",
        R"({"impl":"none","scope":[]})"}},
      {"optimizer.grad_dtype", {"\"bf16\""}},
      {"comm.overlap_grad_reduce", {"true"}},
      {"comm.tp_comm_overlap", {"true"}},
      {"layout.expert_model_parallel_size", {"1", "2", "4", "8", "16", "32", "64"}},
      {"layout.tensor_model_parallel_size", {"1", "2", "4", "8"}},
  };
  return list;
}

/// Applies one trial; the text of the change, or "" when it does not apply or changes nothing.
std::string apply(Run& run, const char* name, const char* value) {
  const Value parsed = Value::parse(value);
  std::string change;
  const auto set = [&](const std::string& key, const Value& v) {
    const Knob* knob = find_knob(key);
    if (knob == nullptr || knob->get(run) == v) return true;
    if (!knob->set(run, v).empty()) return false;
    change += (change.empty() ? "" : " ") + std::string(knob->key) + "=" +
              (v.is_string() ? v.get<std::string>() : v.dump());
    return true;
  };
  if (!parsed.is_object()) return set(name, parsed) ? change : "";
  for (const auto& [field, v] : parsed.items()) {
    if (!set(std::string(name) + "." + field, v)) return "";
  }
  return change;
}

}  // namespace

std::vector<Advice> advise(const Problem& p, const Layout& l, const Outcome& now) {
  const bool fits = now.status == Outcome::Status::fits;
  Legality legality(p);
  std::vector<Advice> found;
  const bool is_flex = l.dispatcher == Dispatcher::deepep || l.dispatcher == Dispatcher::hybridep;
  for (const Trial& trial : trials()) {
    if (trial.is_of_flex && !is_flex) continue;
    Advice best;
    for (const char* value : trial.values) {
      Problem changed = p;
      changed.run.layout = l;
      const std::string change = apply(changed.run, trial.knob, value);
      const Layout& candidate = changed.run.layout;
      if (change.empty() || legality.first_broken(candidate) >= 0) continue;
      Evaluator e(p);
      const Outcome o = e.evaluate(candidate, Depth::exact);
      if (o.status == Outcome::Status::no_plan) continue;
      const Advice a{change, 100 * (o.step / now.step - 1), (o.peak - now.peak) / kBytesPerGib};
      const bool helps = fits ? o.status == Outcome::Status::fits && a.step_time_delta_pct < -0.5
                              : a.memory_delta_gib < -0.1;
      const bool better = best.change.empty() || a.step_time_delta_pct < best.step_time_delta_pct;
      if (helps && better) best = a;
    }
    if (!best.change.empty()) found.push_back(best);
  }
  std::stable_sort(found.begin(), found.end(), [](const Advice& a, const Advice& b) {
    return a.step_time_delta_pct < b.step_time_delta_pct;
  });
  if (found.size() > 8) found.resize(8);
  return found;
}

}  // namespace moecast
