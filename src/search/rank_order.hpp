#pragma once
/// The order of the answer, for items with a RankKey `key`: what a search and a merge share.
#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "moecast/search.hpp"

namespace moecast {

inline constexpr std::size_t kFrontRows = 10;

/// Rows whose splits are improved before the list is cut: the first does not depend on how many are
/// listed, up to ten.
inline int compared_rows(int top) { return std::max(top, 10); }

/// Sorted, the best of every family before the rest.
template <typename T, typename Less>
std::vector<T> in_rank_order(std::vector<T> items, Less less) {
  std::sort(items.begin(), items.end(), less);
  std::set<decltype(RankKey::family)> seen;
  std::vector<T> ordered, rest;
  for (T& item : items)
    (seen.insert(item.key.family).second ? ordered : rest).push_back(std::move(item));
  ordered.insert(ordered.end(), rest.begin(), rest.end());
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
  std::set<decltype(RankKey::family)> families;
  const std::vector<T> ranked = first_of(in_rank_order, top);
  for (const T& item : ranked) families.insert(item.key.family);
  return families.size() < top ? std::numeric_limits<double>::infinity() : ranked.back().key.value;
}

/// Step time against memory: the fastest first, each next one takes less memory.
template <typename T>
std::vector<T> pareto_front(std::vector<T> items, double limit, std::size_t rows) {
  std::sort(items.begin(), items.end(), [](const T& a, const T& b) {
    return std::tie(a.key.step, a.key.reserved, a.key.place) <
           std::tie(b.key.step, b.key.reserved, b.key.place);
  });
  std::vector<T> front;
  for (const T& item : items)
    if (item.key.value <= limit && (front.empty() || item.key.reserved < front.back().key.reserved))
      front.push_back(item);
  return first_of(front, rows);
}

}  // namespace moecast
