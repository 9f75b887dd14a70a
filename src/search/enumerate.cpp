#include "search/enumerate.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <thread>

#include "search/mesh_scan.hpp"

namespace moecast {

void parallel_for(std::size_t items, int threads, const std::function<void(int, std::size_t)>& f) {
  std::atomic<std::size_t> next{0};
  const auto work = [&](int thread) {
    for (std::size_t i = next++; i < items; i = next++) f(thread, i);
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(work, t);
  work(0);
  for (auto& t : pool) t.join();
}

FitOrder fit_order(const Space& s, const Survivor& c) {
  const Layout l = s.mesh(c.mesh);
  const RecomputeChoice& r = s.recomputes[c.inner.recompute];
  const OffloadChoice& o = s.offloads[c.inner.offload];
  const auto n = [](auto value) { return static_cast<std::int64_t>(value); };
  return {n(!o.modules.empty() || o.optimizer_fraction > 0),
          n(r.granularity == RecomputeGranularity::full),
          n(l.tp * l.cp * l.pp),
          n(std::popcount(r.modules.bits)),
          n(l.vpp),
          n(l.ep * l.etp),
          n(l.micro_batch_size),
          n(c.mesh),
          n(c.inner.dispatcher),
          n(c.inner.overlap),
          n(c.inner.graph),
          n(c.inner.offload)};
}

namespace {

/// Numbers of the meshes that differ in these axes only, from the first of them on.
std::vector<std::uint32_t> meshes_along(const Space& s, bool pipeline) {
  std::vector<std::uint32_t> numbers{0};
  std::size_t stride = s.meshes();
  for (const Space::Axis& axis : s.axes) {
    stride /= axis.size;
    if (axis.pipeline != pipeline) continue;
    std::vector<std::uint32_t> next;
    next.reserve(numbers.size() * axis.size);
    for (const std::uint32_t number : numbers) {
      for (std::size_t value = 0; value < axis.size; ++value)
        next.push_back(number + static_cast<std::uint32_t>(value * stride));
    }
    numbers = std::move(next);
  }
  return numbers;
}

/// Meshes that share layer tables stand together: they differ in PP and VPP only.
std::vector<std::uint32_t> by_shard(const Space& s, const SearchPart& part) {
  std::vector<std::uint32_t> order;
  if (s.meshes() == 0) return order;
  order.reserve(s.meshes());
  const std::vector<std::uint32_t> pipelines = meshes_along(s, true);
  for (const std::uint32_t group : meshes_along(s, false)) {
    for (const std::uint32_t pipeline : pipelines)
      if (part.has(group + pipeline)) order.push_back(group + pipeline);
  }
  return order;
}

}  // namespace

Enumeration enumerate(const SearchRequest& request, const Problem& p, const Space& space,
                      int threads, const Ceiling& ceiling) {
  constexpr std::size_t kMostMeshes = 64;  // that a thread takes at a time
  constexpr std::size_t kSpread = 16;      // one block of so many is scanned first
  std::vector<std::unique_ptr<MeshScan>> scans;
  for (int t = 0; t < threads; ++t) scans.push_back(std::make_unique<MeshScan>(request, p, space));
  const std::vector<std::uint32_t> order = by_shard(space, request.part);
  const std::size_t length = std::clamp<std::size_t>(order.size() / kMostMeshes, 1, kMostMeshes);
  std::vector<std::size_t> first, rest;  // blocks, by their first mesh
  for (std::size_t begin = 0; begin < order.size(); begin += length) {
    const bool early = ceiling && begin / length % kSpread == kSpread / 2;
    (early ? first : rest).push_back(begin);
  }
  std::atomic<std::size_t> done{0};
  std::mutex reporting;
  const auto scan_all = [&](const std::vector<std::size_t>& blocks) {
    parallel_for(blocks.size(), threads, [&](int thread, std::size_t block) {
      if (request.stopped()) return;
      const std::size_t end = std::min(order.size(), blocks[block] + length);
      for (std::size_t i = blocks[block]; i < end; ++i)
        scans[static_cast<std::size_t>(thread)]->scan(order[i]);
      const std::size_t finished = done += end - blocks[block];
      if (request.progress && block % 4 == 0) {
        const std::lock_guard lock(reporting);
        request.progress(0.8 * static_cast<double>(finished) / static_cast<double>(order.size()));
      }
    });
  };
  if (!first.empty()) {
    scan_all(first);
    std::vector<Survivor> found;
    for (auto& scan : scans) scan->give_survivors(found);
    const double limit = ceiling(std::move(found));
    for (auto& scan : scans) scan->keep_up_to(limit);
  }
  scan_all(rest);
  Scan sum;
  for (auto& scan : scans) sum.add(space, scan->result());
  Enumeration all;
  all.candidates = done * space.inner_size();
  if (done < order.size())
    all.scanned = static_cast<double>(done) / static_cast<double>(order.size());
  all.legal = sum.legal;
  all.evaluated = sum.evaluated;
  all.fit = sum.fit;
  all.survivors = std::move(sum.survivors);
  all.steps = std::move(sum.steps);
  all.any_fit = sum.any_fit;
  all.first_fit = sum.first_fit;
  all.nearest = sum.nearest;
  all.rejected = sum.rejected();
  return all;
}

}  // namespace moecast
