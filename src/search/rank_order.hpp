#pragma once
/// The order of the answer, for items with a RankKey `key`: what a search and a merge share.
#include <algorithm>
#include <limits>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "moecast/search.hpp"

namespace moecast {

inline constexpr std::size_t kFrontRows = 10;

/// Rows whose splits are improved before the list is cut: the first does not depend on how many are
/// listed, up to ten.
inline int compared_rows(int top) { return std::max(top, 10); }

struct FamilyHash {
  std::size_t operator()(const decltype(RankKey::family)& f) const {
    return ((std::size_t{f[0]} << 20) ^ (f[1] << 1) ^ f[2]) * 0x9e3779b97f4a7c15u;
  }
};
using Families = std::unordered_set<decltype(RankKey::family), FamilyHash>;

/// Sorted, the best of every family before the rest.
template <typename T, typename Less>
std::vector<T> in_rank_order(std::vector<T> items, Less less) {
  std::vector<T*> sorted;
  sorted.reserve(items.size());
  for (T& item : items) sorted.push_back(&item);
  std::sort(sorted.begin(), sorted.end(), [&](const T* a, const T* b) { return less(*a, *b); });
  Families seen;
  std::stable_partition(sorted.begin(), sorted.end(),
                        [&](const T* item) { return seen.insert(item->key.family).second; });
  std::vector<T> ordered;
  ordered.reserve(items.size());
  for (T* item : sorted) ordered.push_back(std::move(*item));
  return ordered;
}

template <typename T>
std::vector<T> in_rank_order(std::vector<T> items) {
  return in_rank_order(std::move(items), [](const T& a, const T& b) { return a.key < b.key; });
}

template <typename T>
std::vector<T> first_of(const std::vector<T>& items, std::size_t count) {
  return {items.begin(),
          items.begin() + static_cast<std::ptrdiff_t>(std::min(count, items.size()))};
}

/// The worst value that an item of the front may have: the search knows every layout up to the
/// value of the K-th family, and all of them where there are fewer families.
template <typename T>
double front_limit(const std::vector<T>& in_rank_order, std::size_t top) {
  Families families;
  const std::vector<T> ranked = first_of(in_rank_order, top);
  for (const T& item : ranked) families.insert(item.key.family);
  return families.size() < top ? std::numeric_limits<double>::infinity() : ranked.back().key.value;
}

/// Step time against memory: the fastest first, each next one takes less memory.
template <typename T>
std::vector<T> pareto_front(std::vector<T> items, double limit, std::size_t rows) {
  std::erase_if(items, [&](const T& item) { return item.key.value > limit; });
  std::sort(items.begin(), items.end(), [](const T& a, const T& b) {
    return std::tie(a.key.step, a.key.reserved, a.key.place) <
           std::tie(b.key.step, b.key.reserved, b.key.place);
  });
  std::vector<T> front;
  for (const T& item : items)
    if (front.empty() || item.key.reserved < front.back().key.reserved) front.push_back(item);
  return first_of(front, rows);
}

}  // namespace moecast
