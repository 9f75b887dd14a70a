// The walked schedule against the longest path of its graph (Boost.Graph).
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dag_shortest_paths.hpp>
#include <functional>
#include <map>
#include <tuple>

#include "catch.hpp"
#include "estimate/schedule.hpp"
#include "schedule_cases.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

using Weight = boost::property<boost::edge_weight_t, double>;
using Graph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Weight>;
using Vertex = boost::graph_traits<Graph>::vertex_descriptor;

/// Vertices are starts of operations; an edge says how long after one the next may start.
class StepGraph {
 public:
  StepGraph(const ScheduleShape& s, const ScheduleTimes& t) : s_(s), t_(t) {
    source_ = boost::add_vertex(graph_);
    for (int rank = 0; rank < s.pp; ++rank) add_rank(rank);
    sink_ = boost::add_vertex(graph_);
    for (const auto& [vertex, took] : last_) boost::add_edge(vertex, sink_, took, graph_);
    for (const auto& [key, node] : nodes_) add_dependency(key, node);
  }

  [[nodiscard]] double longest_path() const {
    std::vector<double> distance(boost::num_vertices(graph_));
    boost::dag_shortest_paths(graph_, source_,
                              boost::distance_map(distance.data())
                                  .distance_compare(std::greater<>())
                                  .distance_inf(-1e300)
                                  .distance_zero(0.0));
    return distance[sink_];
  }

 private:
  struct Node {
    Vertex vertex;
    double took;
  };
  using Key = std::tuple<bool, int, int>;  // forward?, stage, microbatch

  void add_rank(int rank) {
    Vertex before = source_;
    double took_before = 0;
    for (const ScheduleOp& op : rank_order(s_, rank)) {
      const Vertex v = boost::add_vertex(graph_);
      boost::add_edge(before, v, took_before, graph_);
      const double took = duration(rank, op);
      const int f = op.forward_chunk * s_.pp + rank, b = op.backward_chunk * s_.pp + rank;
      bool sends = false;
      if (op.kind != ScheduleOp::Kind::backward) {
        nodes_[{true, f, op.forward_microbatch}] = {v, took};
        sends = f != s_.pp * s_.vpp - 1;
      }
      if (op.kind != ScheduleOp::Kind::forward) {
        nodes_[{false, b, op.backward_microbatch}] = {v, took};
        sends = sends || b != 0;
      }
      before = v;
      took_before = took + (t_.p2p_blocks && sends ? transfer() : 0);
    }
    last_.push_back({before, took_before});
  }

  void add_dependency(const Key& key, const Node& node) {
    const auto [forward, stage, m] = key;
    const bool last = stage == s_.pp * s_.vpp - 1;
    if (!forward && stage == 0) return;
    const Key next =
        forward ? last ? Key{false, stage, m} : Key{true, stage + 1, m} : Key{false, stage - 1, m};
    const double wait = forward && last ? 0 : transfer();
    boost::add_edge(node.vertex, nodes_.at(next).vertex, node.took + wait, graph_);
  }

  [[nodiscard]] double transfer() const { return s_.pp > 1 ? t_.p2p : 0; }
  [[nodiscard]] double duration(int rank, const ScheduleOp& op) const {
    const auto f = static_cast<std::size_t>(rank * s_.vpp + op.forward_chunk);
    const auto b = static_cast<std::size_t>(rank * s_.vpp + op.backward_chunk);
    if (op.kind == ScheduleOp::Kind::forward) return t_.forward[f];
    if (op.kind == ScheduleOp::Kind::backward) return t_.backward[b];
    return t_
        .both[f * static_cast<std::size_t>(s_.vpp) + static_cast<std::size_t>(op.backward_chunk)];
  }

  const ScheduleShape& s_;
  const ScheduleTimes& t_;
  Graph graph_;
  Vertex source_{}, sink_{};
  std::map<Key, Node> nodes_;
  std::vector<std::pair<Vertex, double>> last_;
};

}  // namespace

TEST_CASE("the walked makespan is the longest path of the step's graph") {
  std::mt19937 random(21);
  for (int i = 0; i < 400; ++i) {
    const ScheduleShape s = random_shape(random, 6, 3, 12);
    const ScheduleTimes t = random_times(random, s);
    INFO("case " << i << ": " << to_string(s) << " p2p " << t.p2p);
    REQUIRE_THAT(walk(s, t).makespan, WithinRel(StepGraph(s, t).longest_path(), 1e-12));
  }
}
