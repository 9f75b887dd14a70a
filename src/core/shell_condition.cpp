#include "core/shell_condition.hpp"

#include <algorithm>
#include <charconv>

namespace moecast::shell {
namespace {

Truth truth(bool value) { return value ? Truth::yes : Truth::no; }
Truth negated(Truth value) {
  if (value == Truth::unknown) return value;
  return value == Truth::yes ? Truth::no : Truth::yes;
}

std::optional<long long> integer(const std::string& text) {
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

struct Term {
  std::string text;
  bool known = true;
};

class Condition {
 public:
  explicit Condition(std::vector<Term> terms) : terms_(std::move(terms)) {}

  Truth read() {
    const Truth result = any();
    return at_ == terms_.size() ? result : Truth::unknown;
  }

 private:
  [[nodiscard]] bool next_is(std::string_view a, std::string_view b) const {
    return at_ < terms_.size() && (terms_[at_].text == a || terms_[at_].text == b);
  }

  Truth any() {
    Truth result = all();
    while (next_is("||", "-o")) {
      ++at_;
      const Truth right = all();
      if (result == Truth::yes || right == Truth::yes) {
        result = Truth::yes;
      } else if (right == Truth::unknown) {
        result = right;
      }
    }
    return result;
  }

  Truth all() {
    Truth result = one();
    while (next_is("&&", "-a")) {
      ++at_;
      const Truth right = one();
      if (result == Truth::no || right == Truth::no) {
        result = Truth::no;
      } else if (right == Truth::unknown) {
        result = right;
      }
    }
    return result;
  }

  Truth one() {
    bool turned = false;
    while (next_is("!", "!") && at_ + 1 < terms_.size()) {
      turned = !turned;
      ++at_;
    }
    const Truth result = comparison();
    return turned ? negated(result) : result;
  }

  Truth comparison() {
    if (at_ >= terms_.size()) return Truth::unknown;
    const Term left = terms_[at_++];
    if (left.text.size() == 2 && left.text[0] == '-' && at_ < terms_.size() &&
        !next_is("=", "==")) {
      const Term operand = terms_[at_++];
      if (!operand.known) return Truth::unknown;
      if (left.text == "-z") return truth(operand.text.empty());
      if (left.text == "-n") return truth(!operand.text.empty());
      return Truth::unknown;  // -f, -d: files are not looked at
    }
    if (at_ + 1 >= terms_.size() || next_is("&&", "||") || next_is("-a", "-o"))
      return left.known ? truth(!left.text.empty()) : Truth::unknown;
    const std::string op = terms_[at_].text;
    const Term right = terms_[at_ + 1];
    at_ += 2;
    return left.known && right.known ? compare(left.text, op, right.text) : Truth::unknown;
  }

  static Truth compare(const std::string& a, const std::string& op, const std::string& b) {
    const bool pattern = b.find_first_of("*?[") != std::string::npos;
    if (op == "=" || op == "==") return pattern ? Truth::unknown : truth(a == b);
    if (op == "!=") return pattern ? Truth::unknown : truth(a != b);
    const auto x = integer(a), y = integer(b);
    if (!x || !y) return Truth::unknown;
    if (op == "-eq") return truth(*x == *y);
    if (op == "-ne") return truth(*x != *y);
    if (op == "-lt") return truth(*x < *y);
    if (op == "-le") return truth(*x <= *y);
    if (op == "-gt") return truth(*x > *y);
    return op == "-ge" ? truth(*x >= *y) : Truth::unknown;
  }

  std::vector<Term> terms_;
  std::size_t at_ = 0;
};

Truth decide_sum(const Token& word, Scope& scope) {
  const std::string& text = word.text;
  const auto value = scope.arithmetic(std::string_view(text).substr(2, text.size() - 4));
  return value ? truth(*value != 0) : Truth::unknown;
}

}  // namespace

bool is_test(std::string_view word) {
  return word == "[" || word == "[[" || word == "test" ||
         (word.size() > 4 && word.substr(0, 2) == "((");
}

Truth decide(const std::vector<Token>& words, std::size_t first, Scope& scope) {
  const std::string& name = words[first].text;
  if (name.substr(0, 2) == "((") return decide_sum(words[first], scope);
  const std::string end = name == "[" ? "]" : name == "[[" ? "]]" : "";
  std::vector<Term> terms;
  for (std::size_t i = first + 1; i < words.size() && words[i].text != end; ++i) {
    const bool word = words[i].kind == Token::Kind::word;
    Term term{word ? scope.expand_whole(words[i]).text() : words[i].text, true};
    term.known = !word || !is_undecided(term.text);
    terms.push_back(std::move(term));
  }
  return Condition(std::move(terms)).read();
}

}  // namespace moecast::shell
