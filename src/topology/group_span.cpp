#include "topology/group_span.hpp"

#include <algorithm>

namespace moecast {
namespace {

void mark(Footprint& f, PairClass c) { f.pairs[static_cast<std::size_t>(c)] = true; }

}  // namespace

PairClass pair_class(const Placement& placement, int a, int b) {
  if (placement.domain_of(a) == placement.domain_of(b)) {
    return placement.node_of(a) == placement.node_of(b) ? PairClass::same_node
                                                        : PairClass::same_domain;
  }
  return placement.rail_of(a) == placement.rail_of(b) ? PairClass::same_rail
                                                      : PairClass::across_rails;
}

Footprint worst(const Footprint& a, const Footprint& b) {
  Footprint w = a;
  w.ranks = std::max(a.ranks, b.ranks);
  w.ranks_per_domain = std::min(a.ranks_per_domain, b.ranks_per_domain);
  w.domains = std::max(a.domains, b.domains);
  w.nodes = std::max(a.nodes, b.nodes);
  for (std::size_t c = 0; c < kPairClasses; ++c) w.pairs[c] = a.pairs[c] || b.pairs[c];
  return w;
}

void FootprintCounter::add(int rank) {
  const bool first = seen_.ranks == 0;
  const bool new_domain = first || placement_.domain_of(rank) != placement_.domain_of(last_);
  const bool new_node = first || placement_.node_of(rank) != placement_.node_of(last_);
  if (new_domain) {
    close_domain();
    ++seen_.domains;
  } else {
    mark(seen_, new_node ? PairClass::same_domain : PairClass::same_node);
  }
  if (new_node) ++seen_.nodes;
  if (!first && placement_.rail_of(rank) != placement_.rail_of(last_)) one_rail_ = false;
  ++in_domain_;
  ++seen_.ranks;
  last_ = rank;
}

void FootprintCounter::close_domain() {
  if (in_domain_ > 0) {
    seen_.ranks_per_domain =
        seen_.domains == 1 ? in_domain_ : std::min(seen_.ranks_per_domain, in_domain_);
  }
  in_domain_ = 0;
}

Footprint FootprintCounter::finish() {
  close_domain();
  // With two rails in a group of several domains, some pair differs in both: if x and y of one
  // domain differ in rail, any z of another domain differs from one of them. Crossing rails is
  // never cheaper, so it stands for both.
  if (seen_.domains > 1) mark(seen_, one_rail_ ? PairClass::same_rail : PairClass::across_rails);
  return seen_;
}

Footprint worst_footprint(const Placement& placement, int world, int stride, int size) {
  const long long reach = static_cast<long long>(size - 1) * stride;
  const long long block = reach + stride;
  Footprint result;
  bool first = true;
  for (long long start = 0; start + reach < world; start += block) {
    // A footprint depends on where in its domain a group starts: from here on all repeats.
    if (start > 0 && start % placement.per_domain == 0) break;
    for (long long a = start; a < start + stride && a + reach < world; ++a) {
      FootprintCounter counter(placement);
      for (int i = 0; i < size; ++i) {
        counter.add(static_cast<int>(a + static_cast<long long>(i) * stride));
      }
      const Footprint one = counter.finish();
      result = first ? one : worst(result, one);
      first = false;
    }
  }
  return result;
}

}  // namespace moecast
