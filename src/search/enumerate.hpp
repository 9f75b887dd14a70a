#pragma once
/// First pass: every candidate of the space against the rules, then memory and bound, one by one
/// (and, where all are asked for, the exact step).
/// Deterministic for any thread count: sums, and minima with a total order.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "estimate/evaluate.hpp"
#include "search/space.hpp"

namespace moecast {

/// A candidate that fits and that no cheaper sibling makes pointless.
struct Survivor {
  std::uint32_t mesh = 0;
  InnerIndex inner;
  double bound = 0, reserved = 0;
};

/// What a survivor is ranked by, or cannot be better than.
inline double least_value(const SearchRequest& r, const Survivor& c) {
  return r.objective == SearchRequest::Objective::memory ? c.reserved : c.bound;
}

/// The place in the space: breaks ties.
inline auto place_of(std::uint32_t mesh, const InnerIndex& i) {
  return std::tuple(mesh, i.offload, i.dispatcher, i.overlap, i.graph, i.recompute);
}
inline auto place_of(const Survivor& c) { return place_of(c.mesh, c.inner); }

struct Shortfall {
  bool any = false;
  std::uint32_t mesh = 0;
  InnerIndex inner;
  double over = 0;
};

struct Enumeration {
  std::uint64_t candidates = 0, legal = 0, evaluated = 0, fit = 0;
  double scanned = 1;               ///< share of the meshes; less when stopped
  std::vector<Survivor> survivors;  ///< in no particular order; not those given to `ceiling`
  std::vector<double> steps;        ///< of the survivors, when all are asked for
  bool any_fit = false;
  Survivor first_fit;
  Shortfall nearest;
  std::map<std::string, std::uint64_t> rejected;
};

/// No offload, selective before full recomputation, smallest model parallelism, then least
/// recomputation, fewest chunks, smallest expert groups, smallest micro batch.
FitOrder fit_order(const Space& s, const Survivor& c);
/// What decides in most cases: equal for equal first three of the order, and sorts as they do. `l`:
/// the survivor's mesh.
inline std::uint64_t first_of_fit_order(const Space& s, const Layout& l, const Survivor& c) {
  const OffloadChoice& o = s.offloads[c.inner.offload];
  const bool offloads = !o.modules.empty() || o.optimizer_fraction > 0;
  const bool full = s.recomputes[c.inner.recompute].granularity == RecomputeGranularity::full;
  return (std::uint64_t{offloads} << 33 | std::uint64_t{full} << 32) +
         static_cast<std::uint64_t>(l.tp * l.cp * l.pp);
}

/// `ceiling` (optional) gets the survivors of a few blocks from all over the space and says what
/// value (bound, or bytes) is too large to matter: later ones above it are counted, not kept.
using Ceiling = std::function<double(std::vector<Survivor>)>;
Enumeration enumerate(const SearchRequest& request, const Problem& p, const Space& space,
                      int threads, const Ceiling& ceiling = {});

/// Runs f(thread, item) for every item on `threads` workers; items are taken in order.
void parallel_for(std::size_t items, int threads,
                  const std::function<void(int thread, std::size_t item)>& f);

}  // namespace moecast
