#pragma once
/// Megatron's rank order and group construction (parallel_state.py RankGenerator, order
/// tp-cp-ep-dp-pp), folding included.
#include <cstdint>
#include <string>
#include <vector>

#include "moecast/layout.hpp"

namespace moecast {

enum class GroupName : std::uint8_t { tp, cp, dp, dp_cp, pp, ep, etp, etp_ep, edp };
std::string to_string(GroupName g);

/// Every group of the default order is an arithmetic progression of global ranks.
struct GroupShape {
  int stride = 1;
  int size = 1;
};
GroupShape group_shape(GroupName g, const Layout& layout, int world);
/// The ranks of the group that `rank` is in, in Megatron's order.
std::vector<int> group_members(GroupName g, const Layout& layout, int world, int rank);

struct AttentionCoordinates {
  int tp, cp, dp, pp;
};
struct ExpertCoordinates {
  int etp, ep, edp, pp;
};
AttentionCoordinates attention_coordinates(const Layout& layout, int world, int rank);
ExpertCoordinates expert_coordinates(const Layout& layout, int world, int rank);

}  // namespace moecast
