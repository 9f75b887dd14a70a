#pragma once
/// The rule table asked about a layout of a problem.
#include "estimate/problem.hpp"
#include "layout/rules.hpp"

namespace moecast {

inline RuleInput rule_input(const Problem& p, const Layout& l, const Versions& versions) {
  return {l, p.model, p.system(), p.run, p.world, p.seq_length, p.global_batch_size, versions};
}

}  // namespace moecast
