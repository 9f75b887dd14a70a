#pragma once
/// Models, systems and stacks that rows name: a table names few of them in hundreds of rows.
#include <map>
#include <mutex>
#include <string>

#include "core/document.hpp"
#include "moecast/result.hpp"

namespace moecast::rows {

/// load(), called once per key and data folder. `load` has a type of its own for every kind of
/// file.
template <typename Load>
auto read_once(const std::string& key, Load load) -> const decltype(load())& {
  static std::mutex mutex;
  static std::map<std::string, decltype(load())> known;
  const std::string place = data_dir().string() + '\n' + key;
  const std::lock_guard lock(mutex);
  auto at = known.find(place);
  if (at == known.end()) at = known.emplace(place, load()).first;
  return at->second;
}

}  // namespace moecast::rows
