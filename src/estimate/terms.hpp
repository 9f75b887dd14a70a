#pragma once
/// A few named amounts of memory with their formulas: the search reads the total, the memory tree
/// shows each. No allocation.
#include <array>
#include <cstddef>

namespace moecast {

struct Term {
  const char* name = "";
  double bytes = 0;
  double count = 0;  ///< elements, or how many; 0 = not counted
  const char* formula = "";
};

class Terms {
 public:
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
  std::array<Term, 8> items_;
  std::size_t size_ = 0;
};

}  // namespace moecast
