#pragma once
/// The parts of the shell reader: tokens, variables, expansion. Ref: POSIX.1-2017 volume 3 chapter
/// 2, and bash(1) for arrays and [[ ]].
#include <cstdint>
#include <optional>

#include "core/shell.hpp"

namespace moecast::shell {

/// Text whose pieces may have been written on different lines.
class Spanned {
 public:
  void add(std::string_view text, int line);
  void add(const Spanned& other);
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] int line_at(std::size_t offset) const;

 private:
  std::string text_;
  std::vector<std::pair<std::size_t, int>> lines_;  ///< from this offset on: this line
};

struct Token {
  enum class Kind : std::uint8_t { word, operation, newline, array, heredoc };
  Kind kind = Kind::newline;
  std::string text;  ///< a word with its quotes; an array's "NAME=" or "NAME+="; a heredoc's body
  int line = 0;
  std::vector<Token> items;  ///< of an array
};
std::vector<Token> tokens_of(std::string_view text, const std::string& file, Diagnostics& warnings);

struct Variable {
  bool is_array = false;
  std::vector<Spanned> items;  ///< one unless is_array
  bool exported = false;
};

/// Variables, and the rules by which words become text.
class Scope {
 public:
  std::map<std::string, Variable> variables;

  /// One word of the script may become none or several.
  std::vector<ShellWord> expand(const Token& word);
  /// As in an assignment or in quotes: never split.
  Spanned expand_whole(const Token& word);
  /// nullopt where a value is not known, or makes no sense.
  std::optional<long long> arithmetic(std::string_view expression);

  [[nodiscard]] bool exhausted() const { return budget_ == 0; }
  /// Script text may double what it holds with every line: there is an end to that.
  bool afford(std::size_t bytes);
  int nesting = 0;  ///< of expansions within expansions
  /// In a condition a variable that nobody set is empty; which ones were asked for.
  bool unset_is_empty = false;
  std::vector<std::string> unset;

 private:
  std::size_t budget_ = std::size_t{16} << 20;
};

/// One level of nesting, and whether that is one too many.
class Nested {
 public:
  explicit Nested(int& level) : level_(level) { ++level_; }
  ~Nested() { --level_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  [[nodiscard]] bool too_deep() const { return level_ > kMost; }

 private:
  static constexpr int kMost = 32;
  int& level_;
};

/// The length of the name at the start of `text`; 0 if there is none.
std::size_t name_length(std::string_view text);
/// One past the end of the bracket that opens at `at` ('(' or '{'), quotes respected; npos when it
/// is never closed.
std::size_t closing(std::string_view text, std::size_t at);

}  // namespace moecast::shell
