#include "model/model_yaml.hpp"

namespace moecast {
namespace {

constexpr std::size_t kLongestPeriod = 16;

std::size_t repeats(const std::vector<std::string>& tokens, std::size_t at, std::size_t period) {
  std::size_t end = at + period;
  while (end < tokens.size() && tokens[end] == tokens[end - period]) ++end;
  return (end - at) / period;
}

}  // namespace

std::vector<std::string> layer_runs(const std::vector<std::string>& tokens) {
  std::vector<std::string> runs;
  for (std::size_t at = 0; at < tokens.size();) {
    std::size_t best_period = 1, best_count = repeats(tokens, at, 1);
    for (std::size_t period = 2; period <= kLongestPeriod && at + period <= tokens.size();
         ++period) {
      const std::size_t count = repeats(tokens, at, period);
      if (count > 1 && count * period > best_count * best_period) {
        best_period = period;
        best_count = count;
      }
    }
    std::string run = std::to_string(best_count) + " x";
    for (std::size_t i = 0; i < best_period; ++i) run += " " + tokens[at + i];
    runs.push_back(run);
    at += best_period * best_count;
  }
  return runs;
}

}  // namespace moecast
