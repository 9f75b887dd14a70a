// $(( ... )): integers, variables, the usual operators.
#include <cctype>
#include <charconv>

#include "core/shell_parts.hpp"

namespace moecast::shell {
namespace {

constexpr int kMaxNesting = 64;
using Number = std::optional<long long>;

struct Operator {
  std::string_view text;
  int precedence;
};
constexpr Operator kArithmetic[] = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3}, {"<=", 4},
                                    {">=", 4}, {"<", 4},  {">", 4},  {"+", 5},  {"-", 5},
                                    {"*", 6},  {"/", 6},  {"%", 6}};

/// nullopt on overflow and on division by zero.
Number apply(std::string_view op, long long a, long long b) {
  long long result = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &result) ? Number() : result;
  if (op == "-") return __builtin_sub_overflow(a, b, &result) ? Number() : result;
  if (op == "*") return __builtin_mul_overflow(a, b, &result) ? Number() : result;
  if (op == "/" || op == "%") {
    if (b == 0 || b == -1) return b == 0 ? Number() : op == "/" ? apply("-", 0, a) : Number(0);
    return op == "/" ? a / b : a % b;
  }
  if (op == "||") return a != 0 || b != 0;
  if (op == "&&") return a != 0 && b != 0;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "<=") return a <= b;
  if (op == ">=") return a >= b;
  return op == "<" ? a < b : a > b;
}

class Sum {
 public:
  Sum(std::string_view text, Scope& scope) : text_(text), scope_(scope) {}

  Number read() {
    const Number value = binary(1, 0);
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  const Operator* next_operator() {
    skip();
    for (const Operator& op : kArithmetic)
      if (text_.substr(at_, op.text.size()) == op.text) return &op;
    return nullptr;
  }

  Number binary(int least, int nesting) {
    Number left = unary(nesting);
    for (const Operator* op;
         left && (op = next_operator()) != nullptr && op->precedence >= least;) {
      at_ += op->text.size();
      const Number right = binary(op->precedence + 1, nesting + 1);
      left = right ? apply(op->text, *left, *right) : std::nullopt;
    }
    return left;
  }

  Number unary(int nesting) {
    skip();
    if (nesting > kMaxNesting || at_ >= text_.size()) return std::nullopt;
    const char c = text_[at_];
    if (c == '-' || c == '+' || c == '!') {
      ++at_;
      const Number value = unary(nesting + 1);
      if (!value || c == '+') return value;
      return c == '!' ? Number(*value == 0) : apply("-", 0, *value);
    }
    if (c == '(') {
      ++at_;
      const Number value = binary(1, nesting + 1);
      skip();
      if (at_ >= text_.size() || text_[at_] != ')') return std::nullopt;
      ++at_;
      return value;
    }
    return std::isdigit(static_cast<unsigned char>(c)) ? number() : variable();
  }

  Number number() {
    long long value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    at_ = static_cast<std::size_t>(end - text_.data());
    return error == std::errc() ? Number(value) : std::nullopt;
  }

  Number variable() {
    const std::size_t length = name_length(text_.substr(at_));
    const auto found = scope_.variables.find(std::string(text_.substr(at_, length)));
    at_ += length;
    if (length == 0 || found == scope_.variables.end() || found->second.items.empty())
      return std::nullopt;
    const std::string text = found->second.items.front().text();
    return scope_.arithmetic(text);
  }

  std::string_view text_;
  Scope& scope_;
  std::size_t at_ = 0;
};

}  // namespace

Number Scope::arithmetic(std::string_view expression) {
  const Nested level(nesting);
  if (level.too_deep() || !afford(expression.size() + 1)) return std::nullopt;
  const Token token{Token::Kind::word, std::string(expression), 0, {}};
  const bool plain = expression.find('$') == std::string_view::npos;
  const std::string text = plain ? token.text : expand_whole(token).text();
  return Sum(text, *this).read();
}

}  // namespace moecast::shell
