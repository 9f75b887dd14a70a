#include <utility>

#include "rules_case_words.hpp"

namespace moecast::test {

Candidate::Candidate() {
  layout.tp = layout.pp = layout.vpp = 2;
  layout.ep = 8;
  model.name = "small-moe";
  model.hidden_size = 4096;
  model.ffn_hidden_size = 8192;
  model.vocab_size = 32000;
  model.moe.num_moe_experts = 64;
  model.moe.moe_router_topk = 8;
  model.moe.moe_ffn_hidden_size = 1408;
  model.moe.moe_shared_expert_intermediate_size = 2048;
  model.mixers.resize(4);
  model.mixers[1].kind = MixerKind::gqa;
  model.mixers[1].num_attention_heads = 32;
  model.mixers[1].num_query_groups = 8;
  model.mixers[2].kind = MixerKind::gdn;
  model.mixers[2].linear_num_key_heads = 16;
  model.mixers[2].linear_num_value_heads = 32;
  model.mixers[3].kind = MixerKind::mamba;
  model.mixers[3].mamba_num_heads = 64;
  model.mixers[3].mamba_num_groups = 8;
  model.layers.assign(16, LayerKind{1, FfnKind::moe});
  model.layers[0].ffn = model.layers[1].ffn = FfnKind::dense;
  on_gpu("NVIDIA H100", 9.0, 8, false);
}

void Candidate::on_gpu(const std::string& name, double compute_capability, int domain, bool grace) {
  system.gpu.name = name;
  system.gpu.compute_capability = compute_capability;
  system.gpus_per_nvlink_domain = domain;
  system.gpus_per_node = grace ? 4 : 8;
  system.grace = grace;
}

Checkable& Candidate::subject() const {
  Run r = run;
  r.layout = layout;
  r.gpus = gpus;
  r.seq_length = seq_length;
  r.global_batch_size = global_batch_size;
  const MegatronConfig config = megatron_config_of(r, model);
  subject_ = std::make_shared<Checkable>(
      config, surroundings_of(config, r, model, system, parse_versions(r.software)));
  return *subject_;
}

const std::vector<RuleCase>& rule_cases() {
  static const std::vector<RuleCase> all = [] {
    std::vector<RuleCase> cases;
    for (auto part : {layout_cases, feature_cases, memory_cases, precision_cases, version_cases}) {
      for (RuleCase& c : part()) cases.push_back(std::move(c));
    }
    return cases;
  }();
  return all;
}

std::set<std::string> broken_rules(const Candidate& c) {
  std::set<std::string> ids;
  for (const Finding& f : check_rules(c.input())) ids.insert(f.rule);
  return ids;
}

Candidate deepseek_v4_flash_on_160_b200() {
  Candidate c;
  c.on_gpu("NVIDIA B200", 10.0, 8, false);
  c.gpus = 160;
  c.seq_length = 131072;
  c.global_batch_size = 128;
  c.layout = Layout{};
  c.layout.pp = 5;
  c.layout.cp = c.layout.ep = 16;
  c.layout.dispatcher = Dispatcher::hybridep;
  c.layout.dispatcher_num_sms = 32;
  selective(c, RecomputeModule::mhc);
  selective(c, RecomputeModule::mla_up_proj);
  layout_string(c, "Et*8|t*9|t*9|t*9|t*8L");
  c.model.name = "deepseek-v4-flash";
  c.model.hyper_connections = 4;
  c.model.moe.num_moe_experts = 256;
  c.model.moe.moe_router_topk = 6;
  c.model.moe.moe_ffn_hidden_size = 2048;
  c.model.mixers.resize(2);
  c.model.mixers[1].kind = MixerKind::csa;
  c.model.mixers[1].num_attention_heads = 64;
  c.model.mixers[1].num_query_groups = 1;
  c.model.mixers[1].index_n_heads = 64;
  c.model.layers.assign(43, LayerKind{1, FfnKind::moe});
  return c;
}

}  // namespace moecast::test
