#include "moecast/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>

#include "topology/cluster_graph.hpp"
#include "topology/group_span.hpp"
#include "topology/system.hpp"

namespace moecast {
struct PairCost {
  BytesPerSecond bandwidth;
  Seconds latency;
};
using PairCosts = std::array<PairCost, kPairClasses>;

namespace {

constexpr int kMaxGpus = 1'000'000;

/// One Dijkstra of each kind from rank 0. The fabric is regular, so the graph of two domains has
/// every class of pair that the cluster has, at the same cost.
PairCosts pair_costs(const System& system, const Placement& placement, int gpus) {
  const int ranks = std::min(gpus, 2 * placement.per_domain);
  const ClusterGraph graph = build_cluster_graph(system, placement, ranks);
  const auto width = widest_paths(graph, 0);
  const auto delay = shortest_paths(graph, 0);
  PairCosts costs;
  for (int r = 1; r < ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    costs[static_cast<std::size_t>(pair_class(placement, 0, r))] = {width[i], delay[i]};
  }
  return costs;
}

int automatic_domain_use(int gpus, int domain) {
  if (gpus <= domain || gpus % domain == 0) return domain;
  int power = 1;
  while (power * 2 < domain) power *= 2;
  for (; power * 3 >= domain; power /= 2) {
    if (gpus % power == 0) return power;
  }
  return domain;
}

Diagnostic problem(std::string key, std::string message, std::string hint) {
  return {"", 0, 0, std::move(key), std::move(message), std::move(hint)};
}

std::optional<Diagnostic> check_gpus(int gpus, int per_node) {
  if (gpus < 1) {
    return problem("cluster.gpus", fmt::format("{} GPUs make no cluster", gpus),
                   "give the number of GPUs of the job, such as 64");
  }
  if (gpus > kMaxGpus) {
    return problem("cluster.gpus", fmt::format("{} GPUs are more than {}", gpus, kMaxGpus),
                   "give the number of GPUs of one job, not of the fleet");
  }
  if (gpus > per_node && gpus % per_node != 0) {
    const int below = gpus / per_node * per_node;
    return problem("cluster.gpus",
                   fmt::format("{} GPUs do not fill nodes of {} GPUs", gpus, per_node),
                   fmt::format("use {} or {}", below, below + per_node));
  }
  return std::nullopt;
}

std::optional<Diagnostic> check_domain_use(int used, const System& system) {
  const std::string key = "cluster.gpus_used_per_domain";
  const int domain = system.gpus_per_nvlink_domain;
  if (used < 0 || used > domain) {
    return problem(key,
                   fmt::format("{} is not between 1 and the {} GPUs of an NVLink domain of {}",
                               used, domain, system.name),
                   "0 lets moecast choose");
  }
  if (used > system.gpus_per_node && used % system.gpus_per_node != 0) {
    return problem(key,
                   fmt::format("{} GPUs do not fill nodes of {} GPUs", used, system.gpus_per_node),
                   fmt::format("use a multiple of {}", system.gpus_per_node));
  }
  return std::nullopt;
}

}  // namespace

struct Cluster::Impl {
  System system;
  int gpus;
  Placement placement;
  PairCosts costs;
  mutable std::shared_mutex mutex;
  mutable std::map<std::pair<int, int>, GroupSpan> spans;  // by (stride, size); addresses stay

  Impl(const System& s, int n, Placement p)
      : system(s), gpus(n), placement(p), costs(pair_costs(s, p, n)) {}

  [[nodiscard]] GroupSpan span_of(const Footprint& f) const;
};

GroupSpan Cluster::Impl::span_of(const Footprint& f) const {
  GroupSpan span{.ranks = f.ranks,
                 .ranks_per_domain = f.ranks_per_domain,
                 .domains = f.domains,
                 .nodes = f.nodes,
                 .bandwidth = BytesPerSecond(std::numeric_limits<double>::infinity()),
                 .latency = Seconds()};
  for (std::size_t c = 0; c < kPairClasses; ++c) {
    if (!f.pairs[c]) continue;
    span.bandwidth = min(span.bandwidth, costs[c].bandwidth);
    span.latency = max(span.latency, costs[c].latency);
  }
  // A group of one sends nothing; its own NVLink keeps divisions finite.
  if (f.ranks == 1) span.bandwidth = system.nvlink_per_direction;
  return span;
}

Result<Cluster> Cluster::build(const System& system, int gpus, int gpus_used_per_domain) {
  if (const std::string wrong = node_shape_problem(system); !wrong.empty()) {
    return problem("cluster.system", wrong, "");
  }
  Diagnostics problems;
  const auto domain_problem = check_domain_use(gpus_used_per_domain, system);
  if (domain_problem) problems.push_back(*domain_problem);
  const bool partial = !domain_problem && gpus_used_per_domain > 0;
  const int per_node =
      partial ? std::min(system.gpus_per_node, gpus_used_per_domain) : system.gpus_per_node;
  if (const auto p = check_gpus(gpus, per_node)) problems.push_back(*p);
  if (!problems.empty()) return problems;

  const int used =
      partial ? gpus_used_per_domain : automatic_domain_use(gpus, system.gpus_per_nvlink_domain);
  Cluster cluster;
  cluster.impl_ = std::make_shared<const Impl>(system, gpus, Placement{system.gpus_per_node, used});
  return cluster;
}

const System& Cluster::system() const { return impl_->system; }
int Cluster::gpus() const { return impl_->gpus; }
int Cluster::gpus_used_per_domain() const { return impl_->placement.per_domain; }
int Cluster::domain_of(int rank) const { return impl_->placement.domain_of(rank); }
int Cluster::node_of(int rank) const { return impl_->placement.node_of(rank); }

const GroupSpan& Cluster::span(int stride, int size) const {
  const Impl& in = *impl_;
  if (stride < 1 || size < 1 || static_cast<long long>(size - 1) * stride >= in.gpus) {
    throw std::logic_error(
        fmt::format("no group of {} ranks, stride {}, in {} GPUs", size, stride, in.gpus));
  }
  const std::pair key(stride, size);
  {
    const std::shared_lock lock(in.mutex);
    if (const auto it = in.spans.find(key); it != in.spans.end()) return it->second;
  }
  const GroupSpan span = in.span_of(worst_footprint(in.placement, in.gpus, stride, size));
  const std::unique_lock lock(in.mutex);
  return in.spans.try_emplace(key, span).first->second;
}

GroupSpan Cluster::span_of(const std::vector<int>& ranks) const {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= gpus()) {
    throw std::logic_error(fmt::format("a group of no ranks, or of ranks beyond {} GPUs", gpus()));
  }
  FootprintCounter counter(impl_->placement);
  for (const int rank : sorted) counter.add(rank);
  return impl_->span_of(counter.finish());
}

}  // namespace moecast
