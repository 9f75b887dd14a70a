#pragma once
/// A small legal MoE candidate by hand, and for every rule one change that breaks it and a near one
/// that does not.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "layout/layout_config.hpp"

namespace moecast::test {

/// 16 layers (2 dense), 64 experts, GQA with shared experts, on 64 Hopper GPUs: TP2 PP2 VPP2 EP8,
/// DP 16, 4 microbatches.
struct Candidate {
  Candidate();
  /// The run in Megatron's names, mutated and ready to be asked; valid until the next call.
  [[nodiscard]] const RuleInput& input() const { return subject().input(); }
  [[nodiscard]] Checkable& subject() const;
  void on_gpu(const std::string& name, double compute_capability, int domain, bool grace);

  Layout layout;
  ModelSpec model;
  System system;
  Run run;
  int gpus = 64, seq_length = 4096, global_batch_size = 64;

 private:
  mutable std::shared_ptr<Checkable> subject_;
};

struct RuleCase {
  std::string id;
  std::function<void(Candidate&)> breaks, passes;
};

const std::vector<RuleCase>& rule_cases();
std::set<std::string> broken_rules(const Candidate& c);
Candidate deepseek_v4_flash_on_160_b200();

}  // namespace moecast::test
