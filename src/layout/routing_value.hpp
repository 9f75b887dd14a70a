#pragma once
/// moe.routing: force_balance | {imbalance: x} | {tokens_per_expert: file.csv}.
#include <string>

#include "layout/knobs.hpp"
#include "moecast/result.hpp"

namespace moecast {

/// Rows of the fullest expert-parallel rank over the mean when a router is left to itself and
/// nothing more is known: 1 + 0.2 log2(EP). The fewer experts a rank has, the less they even out:
/// MoE kernels of H200s with power-law loads take 1.51, 1.73, 2.04 and 2.24 times the balanced time
/// on 8, 16, 32 and 64 ranks (NVIDIA ai-dynamo/aiconfigurator). Published pairs that differ only in
/// forced balance (Qwen3-235B on 256 H100, EP 8, 16k to 128k tokens) are 8 to 20 % slower.
double natural_imbalance(int ep);

/// Relative weights from a CSV file: one per line (expert 0 first), or expert,tokens in any order;
/// # comments and one line of column names may precede. The path is taken from base_dir, then from
/// the working directory.
Result<std::vector<double>> read_tokens_per_expert(const std::string& path,
                                                   const std::string& base_dir);

/// Returns "" or "what is wrong; hint", and then leaves `out` as it was.
std::string set_routing(const Value& value, const std::string& base_dir, Routing& out);

struct RoutingKind {
  static constexpr bool kAsWritten = false;
  static std::string domain();
  static std::string parse(const Value& value, Routing& out) { return set_routing(value, "", out); }
  static Value show(const Routing& routing);
};

}  // namespace moecast
