#pragma once
/// Random legal layouts of small models: what the properties hold for.
#include <random>
#include <string>
#include <vector>

#include "estimate/evaluate.hpp"
#include "layout/rules.hpp"

namespace moecast::test {

struct Sample {
  Problem problem;
  Layout layout;
  std::string words;  ///< seed, number and the whole run: enough to have it again
};

/// The same seed gives the same samples.
class LegalLayouts {
 public:
  explicit LegalLayouts(unsigned seed) : seed_(seed), random_(seed) {}
  /// Legal, and with a pipeline plan.
  Sample next();
  std::mt19937& random() { return random_; }

 private:
  [[nodiscard]] Layout draw(const Problem& p);
  unsigned seed_;
  int number_ = 0;
  std::mt19937 random_;
};

bool is_legal(const Problem& p, const Layout& l);

struct Forecast {
  Outcome outcome;
  Estimate estimate;
};
Forecast forecast(const Problem& p, const Layout& l);
inline Forecast forecast(const Sample& s) { return forecast(s.problem, s.layout); }
inline double step_of(const Problem& p, const Layout& l) {
  return Evaluator(p).evaluate(l, Depth::exact).step;
}

}  // namespace moecast::test
