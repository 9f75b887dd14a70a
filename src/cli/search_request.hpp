#pragma once
/// From the words of `moecast search` to a SearchRequest.
#include <optional>
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
  double worst_imbalance = 1.3;
  int max_ep_domains = 0;
  std::string explain;  ///< RUN file, or key=value,... over the searched run
  std::string shard;    ///< i/n; empty = the whole space
};

/// All problems at once. A knob that is set, by whatever flag, is an axis with one value. With a
/// `start`, what the flags do not say is as there, and its layout is searched again. `later`: keys
/// that are given another way.
Result<SearchRequest> make_search_request(const SearchWords& words,
                                          const std::optional<Run>& start = std::nullopt,
                                          const std::vector<std::string>& later = {});

/// Splits at commas outside brackets: "[a,b],[c]" -> "[a,b]", "[c]".
std::vector<std::string> split_values(const std::string& text);

}  // namespace moecast::cli
