#pragma once
/// The cluster as a Boost.Graph graph: GPU -- NVSwitch (one per domain), GPU -- host (one per
/// node), GPU -- NIC -- leaf switch (one per rail) -- spine.
#include <boost/graph/adjacency_list.hpp>
#include <cstdint>
#include <vector>

#include "moecast/cluster.hpp"
#include "topology/group_span.hpp"

namespace moecast {

struct ClusterVertex {
  enum class Kind : std::uint8_t { gpu, nic, nvswitch, host, leaf, spine };
  Kind kind = Kind::gpu;
  int index = 0;  ///< among its kind; the rank for GPUs and NICs
};
struct Link {
  BytesPerSecond bandwidth;  ///< per direction
  Seconds latency;
};
using ClusterGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, ClusterVertex, Link>;

/// Vertex r is the GPU of rank r.
ClusterGraph build_cluster_graph(const System& system, const Placement& placement, int gpus);

/// To every vertex: the bottleneck of the widest path, and the shortest path's latency.
std::vector<BytesPerSecond> widest_paths(const ClusterGraph& graph, int from);
std::vector<Seconds> shortest_paths(const ClusterGraph& graph, int from);

}  // namespace moecast
