#pragma once
/// moe.routing: force_balance | {imbalance: x} | {tokens_per_expert: file.csv}.
#include <string>

#include "layout/knobs.hpp"
#include "moecast/result.hpp"

namespace moecast {

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
