#include "layout/rules.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "layout/pipeline_plan.hpp"
#include "layout/rules_detail.hpp"

namespace moecast {
namespace rules {

std::vector<Rule> join(std::initializer_list<Section> sections) {
  std::vector<Rule> table;
  for (Section section : sections) {
    std::vector<Rule> rows = section();
    std::move(rows.begin(), rows.end(), std::back_inserter(table));
  }
  return table;
}

int effective_vpp(In in) {
  if (in.layout.vpp > 1 || in.layout.pipeline_split != PipelineSplit::explicit_string) {
    return in.layout.vpp;
  }
  const int stages = count_layout_stages(in.run.pipeline_model_parallel_layout);
  return std::max(1, stages / in.layout.pp);
}

bool has_ffn(In in, FfnKind kind) {
  return std::any_of(in.model.layers.begin(), in.model.layers.end(),
                     [kind](const LayerKind& layer) { return layer.ffn == kind; });
}

bool has_mixer(In in, MixerKind kind) {
  return std::any_of(in.model.mixers.begin(), in.model.mixers.end(),
                     [kind](const Mixer& mixer) { return mixer.kind == kind; });
}

bool feature(In in, std::string_view name) {
  for (const auto& [key, on] : in.run.software.features) {
    if (key == name) return on;
  }
  return false;
}

std::string_view env(In in, std::string_view name) {
  for (const auto& [key, value] : in.run.software.env) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace rules

namespace {

struct HotRule {
  bool (*broken)(const RuleInput&);
  int index;
};

std::vector<HotRule> error_rules() {
  std::vector<HotRule> hot;
  const auto& table = rule_table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].severity == Severity::error) hot.push_back({table[i].broken, static_cast<int>(i)});
  }
  return hot;
}

Finding finding_of(const Rule& rule, const RuleInput& input) {
  return {std::string(rule.id), rule.severity,         {rule.keys.begin(), rule.keys.end()},
          rule.message(input),  std::string(rule.fix), std::string(rule.applies),
          rule.runtime};
}

}  // namespace

const std::vector<Rule>& rule_table() {
  using namespace rules;
  static const std::vector<Rule> table =
      join({mesh_rules, model_rules, overlap_rules, dispatcher_rules, graph_rules, recompute_rules,
            offload_rules, precision_rules, version_rules, advice_rules});
  return table;
}

std::vector<Finding> check_rules(const RuleInput& input) {
  std::vector<Finding> findings;
  for (const Rule& rule : rule_table()) {
    if (!rule.broken(input)) continue;
    findings.push_back(finding_of(rule, input));
    // The other rules divide by these sizes.
    if (&rule == &rule_table().front()) return findings;
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return findings;
}

int first_broken_rule(const RuleInput& input) {
  static const std::vector<HotRule> hot = error_rules();
  for (const HotRule& rule : hot) {
    if (rule.broken(input)) return rule.index;
  }
  return -1;
}

long minimum_gpus(const Layout& layout) {
  const long attention = static_cast<long>(layout.tp) * layout.cp;
  const long expert = static_cast<long>(layout.etp) * layout.ep;
  return layout.pp * std::lcm(attention, expert);
}

}  // namespace moecast
