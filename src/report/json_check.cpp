#include "layout/megatron_config.hpp"
#include "layout/mutations.hpp"
#include "layout/pipeline_plan.hpp"
#include "report/report.hpp"

namespace moecast {
namespace {

/// Every option that is not at its launcher's default.
Json stated_options(const MegatronConfig& config, Flavour flavour) {
  const MegatronConfig defaults = default_config(flavour);
  Json options = Json::object();
  for (const MegatronField& field : megatron_fields()) {
    const auto value = get(config, field);
    if (value != get(defaults, field)) options[std::string(field.name)] = value;
  }
  for (const auto& [name, value] : config.env) options["env." + name] = value;
  return options;
}

}  // namespace

Checked checked_of(const Checkable& subject) {
  const Surroundings& at = subject.input().at;
  MegatronConfig asked = subject.effective();
  static_cast<MegatronKnobs&>(asked) = subject.asked();
  Checked checked;
  checked.flavour = at.flavour;
  checked.findings = check_rules(subject.input());
  checked.mutations = mutations_of(asked, at);
  checked.effective = stated_options(subject.effective(), at.flavour);
  return checked;
}

Json check_json(const Checked& checked) {
  Json findings = Json::array();
  const auto add = [&findings](const Finding& f) {
    // a mutation is information: scripts know error, warning and info
    const bool mutation = f.severity == Severity::mutation;
    findings.push_back({{"rule", f.rule},
                        {"severity", to_string(mutation ? Severity::info : f.severity)},
                        {"keys", f.keys},
                        {"message", f.message},
                        {"fix", f.fix},
                        {"applies", f.applies}});
    if (mutation) findings.back()["kind"] = "mutation";
    if (f.phase == Phase::runtime) findings.back()["phase"] = "runtime";
  };
  for (const Finding& f : checked.findings) add(f);
  for (const Finding& f : checked.mutations) add(f);
  Json document{{"schema", "moecast/check@1"},
                {"for", to_string(checked.flavour)},
                {"findings", findings},
                {"effective", checked.effective}};
  if (checked.plan) document["pipeline_model_parallel_layout"] = to_layout_string(*checked.plan);
  return document;
}

Json diagnosis_json(const std::vector<Diagnosis>& found) {
  Json list = Json::array();
  for (const Diagnosis& d : found) {
    list.push_back({{"rule", d.rule.empty() ? Json() : Json(d.rule)},
                    {"cause", d.cause},
                    {"check", d.check},
                    {"fix", d.fix},
                    {"source", d.source},
                    {"match", d.match}});
  }
  return {{"schema", "moecast/check@1"}, {"findings", Json::array()}, {"diagnoses", list}};
}

}  // namespace moecast
