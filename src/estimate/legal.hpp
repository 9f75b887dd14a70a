#pragma once
/// The rule table asked about layouts of a problem.
#include "estimate/problem.hpp"
#include "layout/rules.hpp"

namespace moecast {

/// Keeps what the layouts of one problem share, so that asking about one allocates nothing.
class Legality {
 public:
  explicit Legality(const Problem& p, Flavour flavour = Flavour::bridge);
  /// Valid until the next call.
  const RuleInput& input(const Layout& l);
  /// Index of the first error rule that the layout breaks, or -1.
  int first_broken(const Layout& l) { return first_broken_rule(input(l)); }
  [[nodiscard]] const Checkable& subject() const { return subject_; }

 private:
  MegatronKnobs knobs_;
  Checkable subject_;
};

std::vector<Finding> check_layout(const Problem& p, const Layout& l,
                                  Flavour flavour = Flavour::bridge);

}  // namespace moecast
