#include "moecast/cluster.hpp"

#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "catch.hpp"
#include "topology/cluster_graph.hpp"

using namespace moecast;

namespace {

Cluster cluster(const std::string& system, int gpus, int used = 0) {
  auto loaded = load_system(system);
  REQUIRE(loaded.ok());
  auto built = Cluster::build(loaded.value(), gpus, used);
  REQUIRE(built.ok());
  return built.take();
}

Diagnostics refusals(const std::string& system, int gpus, int used = 0) {
  auto loaded = load_system(system);
  REQUIRE(loaded.ok());
  return Cluster::build(loaded.value(), gpus, used).problems();
}

double gb_per_s(const GroupSpan& s) { return in_gb_per_s(s.bandwidth); }

}  // namespace

TEST_CASE("a group inside an H100 node runs at NVLink, a group across nodes at one NIC") {
  const Cluster c = cluster("dgx-h100", 64);
  const GroupSpan& node = c.span(1, 8);
  CHECK(node.domains == 1);
  CHECK(node.nodes == 1);
  CHECK(node.ranks_per_domain == 8);
  CHECK(gb_per_s(node) == 450);
  CHECK_THAT(in_us(node.latency), WithinRel(0.88, 1e-9));

  const GroupSpan& peers = c.span(8, 8);  // same GPU index in 8 nodes: one rail
  CHECK(peers.domains == 8);
  CHECK(peers.ranks_per_domain == 1);
  CHECK(gb_per_s(peers) == 50);
  CHECK_THAT(in_us(peers.latency), WithinRel(4.66, 1e-9));

  const GroupSpan& all = c.span(1, 64);
  CHECK(all.ranks_per_domain == 8);
  CHECK(all.nodes == 8);
  CHECK(gb_per_s(all) == 50);
  // Across rails: NVLink to the GPU on the right rail (0.88) beats leaf-spine-leaf (2 x 0.5).
  CHECK_THAT(in_us(all.latency), WithinRel(4.66 + 0.88, 1e-9));
}

TEST_CASE("an expert group of 64 stays in one NVL72 rack packed with 64 ranks") {
  const Cluster c = cluster("gb200-nvl72", 256);
  CHECK(c.gpus_used_per_domain() == 64);
  const GroupSpan& ep = c.span(1, 64);
  CHECK(ep.domains == 1);
  CHECK(ep.nodes == 16);
  CHECK(gb_per_s(ep) == 900);
  const GroupSpan& pp = c.span(64, 4);
  CHECK(pp.domains == 4);
  CHECK(pp.ranks_per_domain == 1);
  CHECK(gb_per_s(pp) == 50);
}

TEST_CASE("packed with all 72 ranks, expert groups of 64 straddle racks") {
  const Cluster c = cluster("gb300-nvl72", 576, 72);  // 8 racks, 9 groups of 64
  const GroupSpan& ep = c.span(1, 64);
  CHECK(ep.domains == 2);
  CHECK(ep.ranks_per_domain == 8);  // ranks 64..127: 8 in rack 0, 56 in rack 1
  CHECK(gb_per_s(ep) == 100);
  CHECK(c.span(1, 72).domains == 1);
  CHECK(c.span(1, 8).domains == 1);   // 72 is a multiple of 8
  CHECK(c.span(1, 16).domains == 2);  // ranks 64..79
  CHECK(c.span(1, 16).ranks_per_domain == 8);
}

TEST_CASE("the packing of a domain follows the job size") {
  CHECK(cluster("gb200-nvl72", 72).gpus_used_per_domain() == 72);
  CHECK(cluster("gb200-nvl72", 64).gpus_used_per_domain() == 72);  // fits in one
  CHECK(cluster("gb200-nvl72", 144).gpus_used_per_domain() == 72);
  CHECK(cluster("gb200-nvl72", 1024).gpus_used_per_domain() == 64);
  CHECK(cluster("gb200-nvl72", 96).gpus_used_per_domain() == 32);
  CHECK(cluster("gb200-nvl72", 100).gpus_used_per_domain() == 72);  // no useful power of two
  CHECK(cluster("dgx-h100", 24).gpus_used_per_domain() == 8);
  CHECK(cluster("dgx-h100", 12, 4).node_of(11) == 2);
}

TEST_CASE("spans of every shipped system agree with the floor formula") {
  for (const std::string& name : shipped_systems()) {
    const int domain = load_system(name).value().gpus_per_nvlink_domain;
    const int gpus = domain == 72 ? 576 : 128;
    const Cluster c = cluster(name, gpus, domain);
    for (int size = 1; size <= 72; ++size) {
      if (gpus % size != 0) continue;
      int domains = 0;
      for (int a = 0; a < gpus; a += size) {
        domains = std::max(domains, (a + size - 1) / domain - a / domain + 1);
      }
      CAPTURE(name, size);
      CHECK(c.span(1, size).domains == domains);
    }
  }
}

TEST_CASE("pair costs equal Dijkstra over the whole graph from any rank") {
  struct Case {
    const char* system;
    int gpus, used;
  };
  for (const auto& k : {Case{"dgx-h100", 32, 0}, Case{"gb200-nvl72", 160, 72},
                        Case{"gb300-nvl72", 128, 64}, Case{"dgx-h800", 20, 4}}) {
    const Cluster c = cluster(k.system, k.gpus, k.used);
    const Placement p{c.system().gpus_per_node, c.gpus_used_per_domain()};
    const ClusterGraph graph = build_cluster_graph(c.system(), p, k.gpus);
    for (const int from : {0, 5, k.gpus / 2, k.gpus - 1}) {
      const auto width = widest_paths(graph, from);
      const auto delay = shortest_paths(graph, from);
      for (int to = 0; to < k.gpus; ++to) {
        if (to == from) continue;
        const GroupSpan pair = c.span_of({from, to});
        CAPTURE(k.system, from, to);
        CHECK(pair.bandwidth == width[static_cast<std::size_t>(to)]);
        CHECK_THAT(in_us(pair.latency),
                   WithinRel(in_us(delay[static_cast<std::size_t>(to)]), 1e-9));
      }
    }
  }
}

TEST_CASE(
    "every vertex of the cluster graph is reachable, and links are as many as the fabric has") {
  const System s = load_system("gb200-nvl72").value();
  const ClusterGraph graph = build_cluster_graph(s, {4, 72}, 144);
  // 144 GPUs and NICs, 2 NVSwitches, 36 hosts, 4 leaves, 1 spine; 4 links per GPU and 4 uplinks.
  CHECK(boost::num_vertices(graph) == 144 * 2 + 2 + 36 + 4 + 1);
  CHECK(boost::num_edges(graph) == 144 * 4 + 4);
  for (const BytesPerSecond b : widest_paths(graph, 0)) CHECK(b.value > 0);
}

TEST_CASE("an explicit group is described whatever the order of its ranks") {
  const Cluster c = cluster("dgx-h100", 32);
  const GroupSpan span = c.span_of({25, 3, 2, 9});
  CHECK(span.ranks == 4);
  CHECK(span.domains == 3);
  CHECK(span.nodes == 3);
  CHECK(span.ranks_per_domain == 1);
  const GroupSpan one = c.span_of({7});
  CHECK(one.domains == 1);
  CHECK(one.latency == Seconds());
  CHECK(gb_per_s(one) == 450);
  CHECK_THROWS_AS(c.span_of({}), std::logic_error);
  CHECK_THROWS_AS(c.span_of({32}), std::logic_error);
  CHECK_THROWS_AS(c.span(8, 5), std::logic_error);
}

TEST_CASE("impossible cluster sizes are refused with a hint") {
  for (const int gpus : {0, -8, 1'000'001, 12}) {
    const Diagnostics d = refusals("dgx-h100", gpus);
    CAPTURE(gpus);
    REQUIRE(d.size() == 1);
    CHECK(d[0].key == "cluster.gpus");
    CHECK_FALSE(d[0].hint.empty());
  }
  CHECK(refusals("dgx-h100", 12)[0].hint == "use 8 or 16");
  CHECK(refusals("dgx-h100", 6).empty());
  CHECK(refusals("gb200-nvl72", 6)[0].hint == "use 4 or 8");
  CHECK(refusals("gb200-nvl72", 64, 73)[0].key == "cluster.gpus_used_per_domain");
  CHECK(refusals("gb200-nvl72", 64, 30)[0].hint == "use a multiple of 4");
  CHECK(refusals("gb200-nvl72", -1, -1).size() == 2);
}

TEST_CASE("a cluster of 16,384 GPUs is built in no time and answers threads alike") {
  using Clock = std::chrono::steady_clock;
  const System system = load_system("dgx-h100").value();
  const auto before = Clock::now();
  const Cluster c = Cluster::build(system, 16384).take();
  const double built = std::chrono::duration<double>(Clock::now() - before).count();
  CHECK(built < 0.5);  // about a millisecond; the whole graph would take a second here

  std::vector<std::thread> threads;
  std::vector<const GroupSpan*> answers(4);
  for (std::size_t t = 0; t < answers.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int size = 1; size <= 1024; size *= 2) {
        for (int stride = 1; stride <= 16; stride *= 2) answers[t] = &c.span(stride, size);
      }
    });
  }
  for (auto& t : threads) t.join();
  for (const GroupSpan* a : answers) CHECK(a == answers[0]);
  CHECK(answers[0]->ranks == 1024);
}

TEST_CASE("the largest cluster that is accepted can be built") {
  const Cluster c = cluster("dgx-b200", 1'000'000);
  CHECK(c.node_of(999'999) == 124'999);
  CHECK(gb_per_s(c.span(8, 125'000)) == 50);
}
