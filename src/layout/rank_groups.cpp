#include "layout/rank_groups.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace moecast {
namespace {

/// Both meshes must tile the world; the rules refuse layouts that do not before anyone asks for
/// groups.
void require_mesh(const Layout& l, int world) {
  const auto tiles = [world](int a, int b, int c) {
    const long long block = static_cast<long long>(a) * b * c;
    return a > 0 && b > 0 && c > 0 && world > 0 && world % block == 0;
  };
  if (!tiles(l.tp, l.cp, l.pp) || !tiles(l.etp, l.ep, l.pp)) {
    throw std::logic_error(fmt::format("tp {} cp {} ep {} etp {} pp {} do not divide {} ranks",
                                       l.tp, l.cp, l.ep, l.etp, l.pp, world));
  }
}

}  // namespace

std::string to_string(GroupName g) {
  switch (g) {
    case GroupName::tp:
      return "tp";
    case GroupName::cp:
      return "cp";
    case GroupName::dp:
      return "dp";
    case GroupName::dp_cp:
      return "dp_cp";
    case GroupName::pp:
      return "pp";
    case GroupName::ep:
      return "ep";
    case GroupName::etp:
      return "etp";
    case GroupName::etp_ep:
      return "etp_ep";
    case GroupName::edp:
      return "edp";
  }
  return "?";
}

// attention: rank = tp + TP (cp + CP (dp + DP pp));  experts: rank = etp + ETP (ep + EP (edp + EDP
// pp))
GroupShape group_shape(GroupName g, const Layout& l, int world) {
  require_mesh(l, world);
  switch (g) {
    case GroupName::tp:
      return {1, l.tp};
    case GroupName::cp:
      return {l.tp, l.cp};
    case GroupName::dp:
      return {l.tp * l.cp, l.dp(world)};
    case GroupName::dp_cp:
      return {l.tp, l.cp * l.dp(world)};
    case GroupName::pp:
      return {world / l.pp, l.pp};
    case GroupName::ep:
      return {l.etp, l.ep};
    case GroupName::etp:
      return {1, l.etp};
    case GroupName::etp_ep:
      return {1, l.etp * l.ep};
    case GroupName::edp:
      return {l.etp * l.ep, l.edp(world)};
  }
  throw std::logic_error("unknown group");
}

std::vector<int> group_members(GroupName g, const Layout& layout, int world, int rank) {
  const GroupShape shape = group_shape(g, layout, world);
  const int first = rank - rank / shape.stride % shape.size * shape.stride;
  std::vector<int> members;
  members.reserve(static_cast<std::size_t>(shape.size));
  for (int i = 0; i < shape.size; ++i) members.push_back(first + i * shape.stride);
  return members;
}

AttentionCoordinates attention_coordinates(const Layout& l, int world, int rank) {
  require_mesh(l, world);
  const int dp = l.dp(world);
  return {rank % l.tp, rank / l.tp % l.cp, rank / (l.tp * l.cp) % dp, rank / (l.tp * l.cp * dp)};
}

ExpertCoordinates expert_coordinates(const Layout& l, int world, int rank) {
  require_mesh(l, world);
  const int edp = l.edp(world);
  return {rank % l.etp, rank / l.etp % l.ep, rank / (l.etp * l.ep) % edp,
          rank / (l.etp * l.ep * edp)};
}

}  // namespace moecast
