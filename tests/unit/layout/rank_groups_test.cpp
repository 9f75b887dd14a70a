#include "layout/rank_groups.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "catch.hpp"

using namespace moecast;

namespace {

constexpr GroupName kAll[] = {GroupName::tp,    GroupName::cp,     GroupName::dp,
                              GroupName::dp_cp, GroupName::pp,     GroupName::ep,
                              GroupName::etp,   GroupName::etp_ep, GroupName::edp};

Layout layout(int tp, int cp, int pp, int ep, int etp = 1) {
  Layout l;
  l.tp = tp;
  l.cp = cp;
  l.pp = pp;
  l.ep = ep;
  l.etp = etp;
  return l;
}

std::vector<int> range(int first, int count, int stride = 1) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(first + i * stride);
  return out;
}

/// Slow twin, after Megatron-LM's generate_masked_orthogonal_rank_groups: a mesh with the left axis
/// fastest; a group holds the ranks that agree on every axis outside the mask, in mesh order.
std::vector<std::vector<int>> orthogonal_groups(const std::vector<int>& sizes,
                                                const std::vector<bool>& mask, int world) {
  std::map<std::vector<int>, std::vector<int>> groups;  // by the coordinates outside the mask
  for (int rank = 0; rank < world; ++rank) {
    std::vector<int> fixed;
    int rest = rank;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      if (!mask[axis]) fixed.push_back(rest % sizes[axis]);
      rest /= sizes[axis];
    }
    groups[fixed].push_back(rank);
  }
  std::vector<std::vector<int>> out;
  for (auto& [fixed, ranks] : groups) out.push_back(std::move(ranks));
  return out;
}

/// The mesh and tokens of a group as in Megatron's order tp-cp-ep-dp-pp: attention with ep 1,
/// experts with cp 1 and tp = etp.
std::vector<std::vector<int>> megatron_groups(GroupName g, const Layout& l, int world) {
  const std::vector<int> attention = {l.tp, l.cp, 1, l.dp(world), l.pp};
  const std::vector<int> experts = {l.etp, 1, l.ep, l.edp(world), l.pp};
  switch (g) {
    case GroupName::tp:
      return orthogonal_groups(attention, {true, false, false, false, false}, world);
    case GroupName::cp:
      return orthogonal_groups(attention, {false, true, false, false, false}, world);
    case GroupName::dp:
      return orthogonal_groups(attention, {false, false, false, true, false}, world);
    case GroupName::dp_cp:
      return orthogonal_groups(attention, {false, true, false, true, false}, world);
    case GroupName::pp:
      return orthogonal_groups(attention, {false, false, false, false, true}, world);
    case GroupName::etp:
      return orthogonal_groups(experts, {true, false, false, false, false}, world);
    case GroupName::ep:
      return orthogonal_groups(experts, {false, false, true, false, false}, world);
    case GroupName::etp_ep:
      return orthogonal_groups(experts, {true, false, true, false, false}, world);
    case GroupName::edp:
      return orthogonal_groups(experts, {false, false, false, true, false}, world);
  }
  return {};
}

/// A random layout whose two meshes tile the world; odd factors included.
std::pair<Layout, int> random_legal(std::mt19937& random) {
  const auto pick = [&](std::vector<int> from) { return from[random() % from.size()]; };
  const int tp = pick({1, 2, 3, 4, 8}), cp = pick({1, 2, 3, 4}), pp = pick({1, 2, 3, 4, 7});
  const int ep = pick({1, 2, 4, 6, 8, 9, 16}), etp = pick({1, 2, 3, 4});
  const int stage = std::lcm(tp * cp, ep * etp) * pick({1, 2, 3});
  return {layout(tp, cp, pp, ep, etp), stage * pp};
}

}  // namespace

TEST_CASE("example a: 256 ranks, PP 8, EP 32 is one expert group per stage") {
  const Layout l = layout(1, 1, 8, 32);
  CHECK(group_shape(GroupName::dp, l, 256).size == 32);
  CHECK(group_shape(GroupName::edp, l, 256).size == 1);
  for (int p = 0; p < 8; ++p) {
    CHECK(group_members(GroupName::ep, l, 256, 32 * p + 5) == range(32 * p, 32));
    CHECK(group_members(GroupName::dp_cp, l, 256, 32 * p + 5) == range(32 * p, 32));
  }
  CHECK(group_members(GroupName::pp, l, 256, 37) == range(5, 8, 32));
}

TEST_CASE("example b: 1024 ranks, TP 2, PP 16, EP 64 fills its stage with one expert group") {
  const Layout l = layout(2, 1, 16, 64);
  CHECK(group_shape(GroupName::dp, l, 1024).size == 32);
  CHECK(group_shape(GroupName::edp, l, 1024).size == 1);
  CHECK(group_members(GroupName::tp, l, 1024, 65) == std::vector<int>{64, 65});
  CHECK(group_members(GroupName::etp_ep, l, 1024, 65) == range(64, 64));
  CHECK(group_members(GroupName::dp, l, 1024, 65) == range(65, 32, 2));
}

TEST_CASE(
    "example c: 64 ranks, TP 4, CP 2, EP 8 keeps experts in a node and their replicas across") {
  const Layout l = layout(4, 2, 1, 8);
  CHECK(group_shape(GroupName::dp, l, 64).size == 8);
  CHECK(group_members(GroupName::ep, l, 64, 13) == range(8, 8));
  CHECK(group_members(GroupName::edp, l, 64, 13) == range(5, 8, 8));
  CHECK(group_members(GroupName::cp, l, 64, 13) == std::vector<int>{9, 13});
}

TEST_CASE("example d: 16 ranks, EP 16 spans both nodes") {
  const Layout l = layout(1, 1, 1, 16);
  CHECK(group_shape(GroupName::dp, l, 16).size == 16);
  CHECK(group_shape(GroupName::edp, l, 16).size == 1);
  CHECK(group_members(GroupName::ep, l, 16, 9) == range(0, 16));
}

TEST_CASE("experts fold over tensor, then context, then data parallel ranks") {
  const Layout l = layout(2, 2, 1, 8);  // dp 4
  std::set<int> tp, cp, dp;
  for (const int r : group_members(GroupName::ep, l, 16, 3)) {
    const AttentionCoordinates at = attention_coordinates(l, 16, r);
    tp.insert(at.tp);
    cp.insert(at.cp);
    dp.insert(at.dp);
  }
  CHECK(tp == std::set<int>{0, 1});
  CHECK(cp == std::set<int>{0, 1});
  CHECK(dp == std::set<int>{0, 1});
}

TEST_CASE("every group of 300 random legal layouts is that of Megatron's orthogonal groups") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const auto [l, world] = random_legal(random);
    for (const GroupName g : kAll) {
      for (const auto& expected : megatron_groups(g, l, world)) {
        for (const int rank : {expected.front(), expected.back()}) {
          if (group_members(g, l, world, rank) != expected) {
            FAIL(to_string(g) << " of rank " << rank << " in " << world << ": tp " << l.tp << " cp "
                              << l.cp << " pp " << l.pp << " ep " << l.ep << " etp " << l.etp);
          }
        }
      }
    }
  }
}

TEST_CASE("groups of every kind partition the world of random legal layouts") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 100; ++trial) {
    const auto [l, world] = random_legal(random);
    for (const GroupName g : kAll) {
      std::vector<int> times(static_cast<std::size_t>(world), 0);
      for (int r = 0; r < world; ++r) {
        const auto members = group_members(g, l, world, r);
        REQUIRE(std::count(members.begin(), members.end(), r) == 1);
        if (members.front() != r) continue;
        for (const int m : members) ++times[static_cast<std::size_t>(m)];
      }
      CAPTURE(to_string(g), world);
      REQUIRE(std::all_of(times.begin(), times.end(), [](int t) { return t == 1; }));
    }
  }
}

TEST_CASE("coordinates rebuild the rank in both meshes, which agree on the stage") {
  std::mt19937 random(13);
  for (int trial = 0; trial < 100; ++trial) {
    const auto [l, world] = random_legal(random);
    for (int r = 0; r < world; ++r) {
      const auto a = attention_coordinates(l, world, r);
      const auto e = expert_coordinates(l, world, r);
      REQUIRE(a.tp + l.tp * (a.cp + l.cp * (a.dp + l.dp(world) * a.pp)) == r);
      REQUIRE(e.etp + l.etp * (e.ep + l.ep * (e.edp + l.edp(world) * e.pp)) == r);
      REQUIRE(a.pp == e.pp);
    }
    const auto size = [&, &lay = l, w = world](GroupName g) { return group_shape(g, lay, w).size; };
    CHECK(size(GroupName::tp) * size(GroupName::dp_cp) * size(GroupName::pp) == world);
    CHECK(size(GroupName::etp_ep) * size(GroupName::edp) * size(GroupName::pp) == world);
  }
}

TEST_CASE("meshes that do not tile the world have no groups") {
  CHECK_THROWS_AS(group_shape(GroupName::tp, layout(3, 1, 1, 1), 8), std::logic_error);
  CHECK_THROWS_AS(group_shape(GroupName::ep, layout(1, 1, 1, 16), 8), std::logic_error);
  CHECK_THROWS_AS(attention_coordinates(layout(0, 1, 1, 1), 8, 0), std::logic_error);
}
