#include "search/simulate.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <tuple>

#include "search/rank_order.hpp"

namespace moecast {

RankKey key_of(const SearchRequest& r, const Space& s, const Survivor& c, double step) {
  const auto n = [](std::size_t index) { return static_cast<std::uint32_t>(index); };
  const InnerIndex& i = c.inner;
  RankKey key;
  key.value = r.objective == SearchRequest::Objective::memory ? c.reserved : step;
  key.step = step;
  key.place = {c.mesh, n(i.dispatcher), n(i.overlap), n(i.graph), n(i.recompute), n(i.offload)};
  key.family = {c.mesh, n(i.dispatcher), s.overlaps[i.overlap].overlap};
  key.reserved = c.reserved;
  return key;
}

namespace {

/// Moves those with the least values, `count` or more, to the front, and says where they end: what
/// a sample says is little is found in one pass over many.
template <typename Iterator, typename Value>
Iterator with_the_least(Iterator begin, Iterator end, std::size_t count, Value value) {
  constexpr std::size_t kSamples = 4096;
  const auto all = static_cast<std::size_t>(end - begin);
  const std::size_t rank = 2 * count * kSamples / std::max<std::size_t>(1, all) + 16;
  if (all < 16 * kSamples || rank > kSamples / 4) return end;
  std::vector<double> sample(kSamples);
  for (std::size_t i = 0; i < kSamples; ++i)
    sample[i] = value(begin[static_cast<std::ptrdiff_t>(all / kSamples * i)]);
  std::nth_element(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(rank),
                   sample.end());
  const double little = sample[rank];
  const auto rest =
      std::partition(begin, end, [&](const auto& item) { return value(item) <= little; });
  return static_cast<std::size_t>(rest - begin) >= count ? rest : end;
}

}  // namespace

Simulation::Simulation(const SearchRequest& r, const Problem& p, const Space& s, int threads)
    : request_(r), s_(s), threads_(threads) {
  for (int t = 0; t < threads; ++t) evaluators_.push_back(std::make_unique<Evaluator>(p));
}

void Simulation::add(std::vector<Survivor> survivors, bool last) {
  survivors.insert(survivors.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  const auto value = [this](const Survivor& c) { return least_value(request_, c); };
  const auto first_to_try = [value](const Survivor& a, const Survivor& b) {
    const double va = value(a), vb = value(b);
    return va != vb ? va < vb : place_of(a) < place_of(b);
  };
  constexpr std::size_t batch_size = 256;        // what stops early is sorted only so far
  constexpr std::size_t probe = 4 * batch_size;  // enough for a limit
  const auto begin = survivors.begin();
  std::size_t sorted = 0;
  for (std::size_t first = 0; first < survivors.size(); first += batch_size) {
    if (first > 0 && request_.stopped()) break;
    if (first >= sorted) {
      const std::size_t from = sorted;
      sorted = std::min(survivors.size(), std::max<std::size_t>(batch_size, 4 * sorted));
      const auto at = [&](std::size_t i) { return begin + static_cast<std::ptrdiff_t>(i); };
      std::nth_element(at(from), at(sorted - 1),
                       with_the_least(at(from), survivors.end(), sorted - from, value),
                       first_to_try);
      std::sort(at(from), at(sorted), first_to_try);
    }
    if (value(survivors[first]) > limit()) break;
    if (!last && first == probe) {
      const auto matters = [&, most = limit()](const Survivor& c) { return value(c) <= most; };
      std::copy_if(begin + probe, survivors.end(), std::back_inserter(waiting_), matters);
      break;
    }
    batch(&survivors[first], std::min(batch_size, survivors.size() - first));
    if (request_.progress && last) {
      const double done = static_cast<double>(first) / static_cast<double>(survivors.size());
      request_.progress(0.8 + 0.2 * done);
    }
  }
}

double Simulation::limit() const {
  if (best_.size() < static_cast<std::size_t>(request_.top))
    return std::numeric_limits<double>::infinity();
  std::vector<double> values;
  for (const auto& [family, value] : best_) values.push_back(value);
  std::nth_element(values.begin(), values.begin() + (request_.top - 1), values.end());
  return values[static_cast<std::size_t>(request_.top) - 1];
}

std::vector<Simulated> Simulation::ranked() { return in_rank_order(std::move(all_)); }

/// Neighbours share tables: a thread takes meshes of one shard group, and of a mesh all there is.
void Simulation::batch(const Survivor* first, std::size_t count) {
  struct Item {
    std::uint64_t group;
    const Survivor* candidate;
  };
  std::vector<Item> order;
  order.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    order.push_back({shard_group(s_, first[i].mesh), first + i});
  std::sort(order.begin(), order.end(), [](const Item& a, const Item& b) {
    return a.group != b.group ? a.group < b.group : place_of(*a.candidate) < place_of(*b.candidate);
  });
  constexpr std::size_t kBlock = 8, kLargeBlock = 48;  // too large ones keep threads waiting
  std::vector<std::size_t> blocks{0};
  for (std::size_t i = 1; i < count; ++i) {
    const std::size_t length = i - blocks.back();
    if ((order[i].group != order[i - 1].group && length >= kBlock) ||
        (order[i].candidate->mesh != order[i - 1].candidate->mesh && length >= kLargeBlock))
      blocks.push_back(i);
  }
  blocks.push_back(count);
  const std::size_t known = all_.size();
  all_.resize(known + count);
  parallel_for(blocks.size() - 1, threads_, [&](int thread, std::size_t block) {
    Evaluator& evaluator = *evaluators_[static_cast<std::size_t>(thread)];
    std::vector<Layout> layouts;
    std::vector<double> steps;
    for (std::size_t i = blocks[block]; i < blocks[block + 1];) {
      layouts.clear();
      const std::uint32_t mesh = order[i].candidate->mesh;
      for (std::size_t j = i; j < blocks[block + 1] && order[j].candidate->mesh == mesh; ++j)
        layouts.push_back(candidate(s_, mesh, order[j].candidate->inner));
      steps.resize(layouts.size());
      evaluator.trim();
      evaluator.steps(layouts, steps);
      for (const double step : steps) {
        const Survivor& c = *order[i].candidate;
        all_[known + i++] = {c, key_of(request_, s_, c, step)};
      }
    }
  });
  for (std::size_t i = known; i < all_.size(); ++i) {
    const RankKey& key = all_[i].key;
    const auto [at, added] = best_.emplace(key.family, key.value);
    if (!added) at->second = std::min(at->second, key.value);
  }
}

Found find_layouts(const SearchRequest& request, const Problem& p, const Space& space,
                   int threads) {
  Simulation simulation(request, p, space, threads);
  const auto ceiling = [&](std::vector<Survivor> some) {
    simulation.add(std::move(some), false);
    return simulation.limit();
  };
  Found found{enumerate(request, p, space, threads, request.exhaustive ? Ceiling() : ceiling), {}};
  if (request.exhaustive) {
    found.ranked = ranked_by(request, space, found.scan.survivors, found.scan.steps);
  } else {
    simulation.add(std::move(found.scan.survivors));
    found.ranked = simulation.ranked();
  }
  return found;
}

std::vector<Simulated> ranked_by(const SearchRequest& request, const Space& space,
                                 const std::vector<Survivor>& survivors,
                                 const std::vector<double>& steps) {
  std::vector<Simulated> all;
  all.reserve(survivors.size());
  for (std::size_t i = 0; i < survivors.size(); ++i)
    all.push_back({survivors[i], key_of(request, space, survivors[i], steps[i])});
  return in_rank_order(std::move(all));
}

}  // namespace moecast
