#pragma once
/// A few named amounts of memory with their formulas: the search reads the total, the memory tree
/// shows each. No allocation, and nothing is written or copied but the terms that are there: a
/// search makes a handful for every rank of every mesh.
#include <algorithm>
#include <array>
#include <cstddef>

namespace moecast {

struct Term {
  const char* name;
  double bytes;
  double count;  ///< elements, or how many; 0 = not counted
  const char* formula;
};

class Terms {
 public:
  Terms() {}  // NOLINT(modernize-use-equals-default): a default one would clear all items
  Terms(const Terms& other) : size_(other.size_) { copy(other); }
  Terms& operator=(const Terms& other) {
    size_ = other.size_;
    copy(other);
    return *this;
  }
  void add(const char* name, double bytes, double count, const char* formula) {
    if (bytes == 0 || size_ == items_.size()) return;
    items_[size_++] = {name, bytes, count, formula};
  }
  [[nodiscard]] double total() const {
    double sum = 0;
    for (const Term& t : *this) sum += t.bytes;
    return sum;
  }
  [[nodiscard]] const Term* begin() const { return items_.data(); }
  [[nodiscard]] const Term* end() const { return items_.data() + size_; }

 private:
  void copy(const Terms& other) { std::copy(other.begin(), other.end(), items_.begin()); }
  std::array<Term, 8> items_;
  std::size_t size_ = 0;
};

}  // namespace moecast
