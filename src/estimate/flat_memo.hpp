#pragma once
/// Values by number, found by probing one array: for tables that hold a few entries and are made
/// and forgotten by the thousand.
#include <cstdint>
#include <utility>
#include <vector>

namespace moecast {

template <typename Value>
class FlatMemo {
 public:
  /// The value of a key (not the largest number there is), and whether it is new. Valid until the
  /// next call.
  std::pair<Value&, bool> at(std::uint64_t key) {
    if (4 * (size_ + 1) > 3 * entries_.size()) grow();
    Entry& e = entries_[place(key)];
    const bool fresh = e.key == kNone;
    if (fresh) {
      e.key = key;
      ++size_;
    }
    return {e.value, fresh};
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t key = kNone;
    Value value{};
  };
  [[nodiscard]] std::size_t place(std::uint64_t key) const {
    const std::size_t mask = entries_.size() - 1;
    std::size_t at = (key * 0x9e3779b97f4a7c15u) >> 32 & mask;
    while (entries_[at].key != kNone && entries_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Entry> old(entries_.empty() ? 8 : 2 * entries_.size());
    old.swap(entries_);
    for (Entry& e : old)
      if (e.key != kNone) entries_[place(e.key)] = std::move(e);
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
};

}  // namespace moecast
