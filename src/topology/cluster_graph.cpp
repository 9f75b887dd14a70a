#include "topology/cluster_graph.hpp"

#include <algorithm>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <functional>
#include <limits>

namespace moecast {
namespace {

using Vertex = ClusterGraph::vertex_descriptor;
using Kind = ClusterVertex::Kind;

/// Adds `count` vertices of a kind; the first one's descriptor.
Vertex add_vertices(ClusterGraph& graph, Kind kind, int count) {
  const Vertex first = boost::num_vertices(graph);
  for (int i = 0; i < count; ++i) boost::add_vertex(ClusterVertex{kind, i}, graph);
  return first;
}

Vertex nth(Vertex first, int i) { return first + static_cast<Vertex>(i); }

template <typename Weight, typename Compare, typename Combine>
std::vector<Weight> dijkstra(const ClusterGraph& graph, int from, Weight Link::*weight,
                             Compare better, Combine combine, Weight unreached, Weight start) {
  std::vector<Weight> best(boost::num_vertices(graph));
  boost::dijkstra_shortest_paths(graph, static_cast<Vertex>(from),
                                 boost::weight_map(boost::get(weight, graph))
                                     .distance_map(boost::make_iterator_property_map(
                                         best.begin(), boost::get(boost::vertex_index, graph)))
                                     .distance_compare(better)
                                     .distance_combine(combine)
                                     .distance_inf(unreached)
                                     .distance_zero(start));
  return best;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

ClusterGraph build_cluster_graph(const System& system, const Placement& placement, int gpus) {
  const int nodes = placement.node_of(gpus - 1) + 1;
  const int rails = std::min({placement.gpus_per_node, placement.per_domain, gpus});
  const Link nvlink{system.nvlink_per_direction, system.nvlink_latency / 2};
  const Link host_link{system.host_link_per_direction, system.host_link_latency};
  const Link gpu_nic{system.nic_per_gpu, Seconds()};  // its share is in nic_latency
  const Link nic_leaf{system.nic_per_gpu, system.nic_latency / 2};
  // A leaf carries the NICs of all nodes; its uplinks are as wide (no oversubscription).
  const Link uplink{system.nic_per_gpu * nodes, system.fabric_switch_latency};

  ClusterGraph graph;
  const Vertex gpu = add_vertices(graph, Kind::gpu, gpus);
  const Vertex nic = add_vertices(graph, Kind::nic, gpus);
  const Vertex nvswitch = add_vertices(graph, Kind::nvswitch, placement.domain_of(gpus - 1) + 1);
  const Vertex host = add_vertices(graph, Kind::host, nodes);
  const Vertex leaf = add_vertices(graph, Kind::leaf, rails);
  const Vertex spine = add_vertices(graph, Kind::spine, 1);
  for (int r = 0; r < gpus; ++r) {
    boost::add_edge(nth(gpu, r), nth(nvswitch, placement.domain_of(r)), nvlink, graph);
    boost::add_edge(nth(gpu, r), nth(host, placement.node_of(r)), host_link, graph);
    boost::add_edge(nth(gpu, r), nth(nic, r), gpu_nic, graph);
    boost::add_edge(nth(nic, r), nth(leaf, placement.rail_of(r)), nic_leaf, graph);
  }
  for (int i = 0; i < rails; ++i) boost::add_edge(nth(leaf, i), spine, uplink, graph);
  return graph;
}

std::vector<BytesPerSecond> widest_paths(const ClusterGraph& graph, int from) {
  return dijkstra(
      graph, from, &Link::bandwidth, std::greater<>(),
      [](BytesPerSecond a, BytesPerSecond b) { return std::min(a, b); }, BytesPerSecond(),
      BytesPerSecond(kInfinity));
}

std::vector<Seconds> shortest_paths(const ClusterGraph& graph, int from) {
  return dijkstra(graph, from, &Link::latency, std::less<>(), std::plus<>(), Seconds(kInfinity),
                  Seconds());
}

}  // namespace moecast
