#pragma once
/// One-knob changes that would help, each evaluated by the same evaluator.
#include "estimate/evaluate.hpp"

namespace moecast {

/// Legal single changes that make the step at least 0.5 % faster and fit, fastest first; when the
/// layout does not fit, those that save memory, smallest loss of time first. At most eight.
std::vector<Advice> advise(const Problem& p, const Layout& l, const Outcome& now);

}  // namespace moecast
