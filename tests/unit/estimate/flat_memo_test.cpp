#include "estimate/flat_memo.hpp"

#include <cstdint>
#include <map>
#include <random>

#include "catch.hpp"

using namespace moecast;

TEST_CASE("does a flat memo know what a map knows?") {
  std::mt19937_64 random(31);
  for (const std::uint64_t keys : {1u, 5u, 100u, 5000u}) {
    FlatMemo<std::uint64_t> memo;
    std::map<std::uint64_t, std::uint64_t> map;
    for (std::uint64_t i = 0; i < 3 * keys; ++i) {
      const std::uint64_t key = (random() % keys) << (i % 2 == 0 ? 32 : 0);
      const auto [known, fresh] = memo.at(key);
      REQUIRE(fresh == map.emplace(key, i).second);
      if (fresh) known = i;
      REQUIRE(known == map[key]);
    }
  }
}
