#pragma once
/// Where ranks sit and what a rank group touches there. Integer arithmetic only; no bandwidths.
#include <array>
#include <cstddef>
#include <cstdint>

namespace moecast {

/// Ranks fill NVLink domains in order, `per_domain` in each, and the nodes of a domain in order.
struct Placement {
  int gpus_per_node = 8;
  int per_domain = 8;

  [[nodiscard]] int nodes_per_domain() const {
    return (per_domain + gpus_per_node - 1) / gpus_per_node;
  }
  [[nodiscard]] int domain_of(int rank) const { return rank / per_domain; }
  [[nodiscard]] int node_of(int rank) const {
    return domain_of(rank) * nodes_per_domain() + rank % per_domain / gpus_per_node;
  }
  /// Index of the GPU in its node: the NICs of one index share a leaf switch (rail).
  [[nodiscard]] int rail_of(int rank) const { return rank % per_domain % gpus_per_node; }
};

/// The fabric is regular: how two ranks reach each other depends only on which of these they are.
enum class PairClass : std::uint8_t { same_node, same_domain, same_rail, across_rails };
inline constexpr std::size_t kPairClasses = 4;

PairClass pair_class(const Placement& placement, int a, int b);

struct Footprint {
  int ranks = 1;
  int ranks_per_domain = 1;  ///< fewest members in any touched domain
  int domains = 1, nodes = 1;
  std::array<bool, kPairClasses> pairs{};  ///< classes of member pairs that occur

  bool operator==(const Footprint&) const = default;
};

/// The worst of both, field by field.
Footprint worst(const Footprint& a, const Footprint& b);

/// Collects one group, its members in ascending order.
class FootprintCounter {
 public:
  explicit FootprintCounter(const Placement& placement) : placement_(placement) {}
  void add(int rank);
  /// Call once, after at least one add.
  [[nodiscard]] Footprint finish();

 private:
  void close_domain();

  Placement placement_;
  Footprint seen_{.ranks = 0, .ranks_per_domain = 0, .domains = 0, .nodes = 0, .pairs = {}};
  int last_ = -1;
  int in_domain_ = 0;
  bool one_rail_ = true;
};

/// Worst over the groups {a + i*stride : i < size} that a mesh of `world` ranks has: blocks of
/// stride*size ranks, with `stride` groups in each. Needs (size - 1) * stride < world.
Footprint worst_footprint(const Placement& placement, int world, int stride, int size);

}  // namespace moecast
