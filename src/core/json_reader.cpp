#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "core/tree_builder.hpp"

namespace moecast {
namespace {

constexpr std::string_view kSeparators = " \t\r\n,:";

/// Counts the characters that the lexer has taken, so that every event knows where its token ended.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t& taken) : at_(at), taken_(&taken) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* taken_;
};

class TreeSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeSax(std::string_view text, Document& doc, Diagnostics& problems)
      : text_(text), marks_(text), doc_(doc), problems_(problems), builder_(doc, problems) {}

  CountingIterator first() { return {text_.data(), taken_}; }
  CountingIterator last() { return {text_.data() + text_.size(), taken_}; }

  bool null() override { return add(Node::Kind::null, "", false); }
  bool boolean(bool value) override {
    return add(Node::Kind::scalar, value ? "true" : "false", false);
  }
  bool number_integer(number_integer_t) override { return add_number(); }
  bool number_unsigned(number_unsigned_t) override { return add_number(); }
  bool number_float(number_float_t, const string_t&) override { return add_number(); }
  bool string(string_t& value) override { return add(Node::Kind::scalar, value, true); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override {
    builder_.key(next_token(), value);
    return true;
  }
  bool start_object(std::size_t) override { return begin(Node::Kind::map); }
  bool start_array(std::size_t) override { return begin(Node::Kind::sequence); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const std::string message = plain_message(error.what());
    problems_.push_back(
        doc_.problem(marks_.at(error_offset(message)), "", "not valid JSON: " + message));
    return false;
  }

 private:
  /// Where the token of the current event starts: the first character after the previous token's
  /// end that is not a separator.
  Mark next_token() {
    token_ = std::min(text_.find_first_not_of(kSeparators, previous_end_), text_.size());
    previous_end_ = taken_;
    return marks_.at(token_);
  }
  bool begin(Node::Kind kind) {
    builder_.begin(kind, next_token());
    return true;
  }
  bool end() {
    previous_end_ = taken_;
    builder_.end();
    return true;
  }
  bool add_number() {
    const Mark mark = next_token();
    const std::size_t end = text_.find_first_not_of("+-.0123456789eE", token_);
    return add(mark, Node::Kind::scalar, std::string(text_.substr(token_, end - token_)), false);
  }
  bool add(Node::Kind kind, std::string text, bool quoted) {
    return add(next_token(), kind, std::move(text), quoted);
  }
  bool add(Mark mark, Node::Kind kind, std::string text, bool quoted) {
    Node node;
    node.kind = kind;
    node.mark = mark;
    node.scalar = std::move(text);
    node.quoted = quoted;
    builder_.value(std::move(node));
    return true;
  }
  /// Whole tokens are named by their start; what is wrong inside a string is the character read
  /// last.
  [[nodiscard]] std::size_t error_offset(const std::string& message) const {
    if (message.starts_with("unexpected end")) return taken_;
    const std::size_t last_read = taken_ - std::min<std::size_t>(taken_, 1);
    const bool is_character =
        message.starts_with("unexpected '") || message.starts_with("invalid string");
    if (is_character) return last_read;
    return std::min(last_read, text_.find_first_not_of(kSeparators, previous_end_));
  }
  /// nlohmann's text without its exception id, its own position, and the raw bytes that it last
  /// read.
  static std::string plain_message(std::string what) {
    if (const auto raw = what.find("; last read: "); raw != std::string::npos) what.resize(raw);
    if (what.find("number overflow") != std::string::npos) return "the number is too large";
    const auto dash = what.find(" - ");
    return dash == std::string::npos ? what : what.substr(dash + 3);
  }

  std::string_view text_;
  MarkCounter marks_;
  Document& doc_;
  Diagnostics& problems_;
  TreeBuilder builder_;
  std::size_t taken_ = 0;
  std::size_t previous_end_ = 0;
  std::size_t token_ = 0;
};

}  // namespace

void read_json(std::string_view text, Document& doc, Diagnostics& problems) {
  TreeSax sax(text, doc, problems);
  try {
    nlohmann::json::sax_parse(sax.first(), sax.last(), &sax);
  } catch (const StopReading&) {
  }
}

}  // namespace moecast
