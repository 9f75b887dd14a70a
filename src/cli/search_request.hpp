#pragma once
/// From the words of `moecast search` to a SearchRequest.
#include <string>
#include <vector>

#include "moecast/result.hpp"
#include "moecast/search.hpp"

namespace moecast::cli {

struct SearchWords {
  std::vector<std::string> sets;  ///< key=value of the knob flags and --set
  std::vector<std::string> fix, vary;
  std::vector<std::string> precisions;
  std::string objective = "step_time";
  int top = 10, threads = 0;
  bool exhaustive = false;
  double min_headroom_gib = 0;
  std::string shard;  ///< i/n; empty = the whole space
};

/// All problems at once. A knob that is set, by whatever flag, is an axis with one value.
Result<SearchRequest> make_search_request(const SearchWords& words);

}  // namespace moecast::cli
