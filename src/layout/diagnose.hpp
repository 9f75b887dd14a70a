#pragma once
/// Text of a training log -> the rule or the symptom behind it.
#include <string>
#include <string_view>
#include <vector>

namespace moecast {

struct Diagnosis {
  std::string rule;  ///< id of a rule; empty for a symptom that no rule states
  std::string cause, check, fix, source;
  double match = 0;  ///< 0..1: share of the text's telling words that the entry explains
};

/// Best first; empty when nothing is near.
std::vector<Diagnosis> diagnose(std::string_view text);

}  // namespace moecast
