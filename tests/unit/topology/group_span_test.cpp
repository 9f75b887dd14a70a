#include "topology/group_span.hpp"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "catch.hpp"

using namespace moecast;

namespace {

/// Every group of the shape, as rank lists: ranks of one block that are equal modulo the stride.
std::vector<std::vector<int>> groups_of(int world, int stride, int size) {
  std::map<std::pair<int, int>, std::vector<int>> groups;
  for (int r = 0; r < world; ++r) groups[{r / (stride * size), r % stride}].push_back(r);
  std::vector<std::vector<int>> out;
  for (auto& [key, ranks] : groups) {
    if (static_cast<int>(ranks.size()) == size) out.push_back(ranks);
  }
  return out;
}

/// Slow twin: sets and all pairs.
Footprint footprint_by_sets(const Placement& p, const std::vector<int>& ranks) {
  std::map<int, int> per_domain;
  std::set<int> nodes;
  Footprint f;
  for (const int a : ranks) {
    ++per_domain[p.domain_of(a)];
    nodes.insert(p.node_of(a));
    for (const int b : ranks) {
      if (a != b) f.pairs[static_cast<std::size_t>(pair_class(p, a, b))] = true;
    }
  }
  f.ranks = static_cast<int>(ranks.size());
  f.domains = static_cast<int>(per_domain.size());
  f.nodes = static_cast<int>(nodes.size());
  f.ranks_per_domain = f.ranks;
  for (const auto& [domain, n] : per_domain) {
    f.ranks_per_domain = std::min(f.ranks_per_domain, n);
  }
  // Pairs across rails stand for pairs on one rail: never cheaper.
  bool& rail = f.pairs[static_cast<std::size_t>(PairClass::same_rail)];
  rail = rail && !f.pairs[static_cast<std::size_t>(PairClass::across_rails)];
  return f;
}

Footprint normalized(Footprint f) {
  bool& rail = f.pairs[static_cast<std::size_t>(PairClass::same_rail)];
  rail = rail && !f.pairs[static_cast<std::size_t>(PairClass::across_rails)];
  return f;
}

}  // namespace

TEST_CASE("ranks fill nodes, then domains, in order") {
  const Placement hgx{8, 8};
  CHECK(hgx.node_of(15) == 1);
  CHECK(hgx.domain_of(15) == 1);
  CHECK(hgx.rail_of(15) == 7);

  const Placement nvl72{4, 64};  // 16 of 18 trays used
  CHECK(nvl72.nodes_per_domain() == 16);
  CHECK(nvl72.domain_of(63) == 0);
  CHECK(nvl72.domain_of(64) == 1);
  CHECK(nvl72.node_of(63) == 15);
  CHECK(nvl72.node_of(64) == 16);
  CHECK(nvl72.rail_of(66) == 2);

  const Placement half_nodes{8, 4};  // 4 GPUs used of every node of 8
  CHECK(half_nodes.node_of(3) == 0);
  CHECK(half_nodes.node_of(4) == 1);
}

TEST_CASE("the worst footprint equals that of explicit rank lists, for hundreds of random shapes") {
  std::mt19937 random(20240607);
  const std::vector<Placement> placements = {{8, 8},  {4, 72}, {4, 64}, {4, 32},
                                             {4, 36}, {8, 4},  {1, 1},  {4, 8}};
  for (int trial = 0; trial < 300; ++trial) {
    const Placement p = placements[random() % placements.size()];
    const int size = 1 + static_cast<int>(random() % 48);
    const int stride = 1 + static_cast<int>(random() % 12);
    const int world = stride * size * (1 + static_cast<int>(random() % 10));
    Footprint expected;
    bool first = true;
    for (const auto& ranks : groups_of(world, stride, size)) {
      const Footprint one = footprint_by_sets(p, ranks);
      expected = first ? one : worst(expected, one);
      first = false;
    }
    CAPTURE(p.gpus_per_node, p.per_domain, stride, size, world);
    CHECK(normalized(worst_footprint(p, world, stride, size)) == normalized(expected));
  }
}

TEST_CASE("a group stays in one domain exactly when the floors of its ends agree") {
  for (const int domain : {8, 32, 64, 72}) {
    const Placement p{domain == 8 ? 8 : 4, domain};
    for (int stride = 1; stride <= 9; ++stride) {
      for (int size = 1; size <= 72; ++size) {
        for (int a = 0; a < 2 * domain; a += 5) {
          FootprintCounter counter(p);
          for (int i = 0; i < size; ++i) counter.add(a + i * stride);
          const bool inside = a / domain == (a + (size - 1) * stride) / domain;
          if ((counter.finish().domains == 1) != inside) {
            FAIL("domain " << domain << " stride " << stride << " size " << size << " start " << a);
          }
        }
      }
    }
  }
}
