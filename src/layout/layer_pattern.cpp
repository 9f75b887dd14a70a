#include "layout/layer_pattern.hpp"

#include <cstddef>

namespace moecast {
namespace {

constexpr std::size_t kLongest = 100'000;
constexpr int kDeepest = 32;

/// sum := product {'+' product}, product := atom {'*' atom}, atom := integer | list | '(' sum ')'.
/// A list times an integer repeats it; integers only multiply lists or each other.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  struct Value {
    bool list = false;
    long number = 0;
    std::vector<int> items;
  };

  std::optional<Value> whole() {
    auto value = sum(0);
    skip();
    if (at_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::optional<long> integer() {
    skip();
    long n = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if ((n = n * 10 + (text_[at_] - '0')) > static_cast<long>(kLongest)) return std::nullopt;
    }
    return at_ == begin ? std::nullopt : std::optional(n);
  }
  std::optional<Value> atom(int depth) {
    if (depth > kDeepest) return std::nullopt;
    if (accept('(')) {
      auto inner = sum(depth + 1);
      return inner && accept(')') ? inner : std::nullopt;
    }
    if (!accept('[')) {
      const auto n = integer();
      return n ? std::optional(Value{false, *n, {}}) : std::nullopt;
    }
    Value list{true, 0, {}};
    while (!accept(']')) {
      const auto n = integer();
      if (!n) return std::nullopt;
      list.items.push_back(static_cast<int>(*n));
      if (!accept(',')) return accept(']') ? std::optional(list) : std::nullopt;
    }
    return list;
  }
  std::optional<Value> product(int depth) {
    auto left = atom(depth);
    while (left && accept('*')) {
      const auto right = atom(depth);
      if (!right || (left->list && right->list)) return std::nullopt;
      left = times(*left, *right);
    }
    return left;
  }
  static std::optional<Value> times(const Value& a, const Value& b) {
    const Value& list = a.list ? a : b;
    const long n = a.list ? b.number : a.number;
    if (!list.list) {
      const long product = a.number * b.number;
      return product <= static_cast<long>(kLongest) ? std::optional(Value{false, product, {}})
                                                    : std::nullopt;
    }
    if (list.items.size() * static_cast<std::size_t>(n) > kLongest) return std::nullopt;
    Value out{true, 0, {}};
    for (long i = 0; i < n; ++i)
      out.items.insert(out.items.end(), list.items.begin(), list.items.end());
    return out;
  }
  std::optional<Value> sum(int depth) {
    auto left = product(depth);
    while (left && accept('+')) {
      const auto right = product(depth);
      if (!right || left->list != right->list ||
          left->items.size() + right->items.size() > kLongest)
        return std::nullopt;
      left->number += right->number;
      left->items.insert(left->items.end(), right->items.begin(), right->items.end());
    }
    return left;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::vector<int>> parse_layer_pattern(std::string_view text) {
  const auto value = Parser(text).whole();
  if (!value) return std::nullopt;
  if (value->list) return value->items;
  return std::vector<int>{static_cast<int>(value->number)};
}

}  // namespace moecast
