#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "core/text.hpp"
#include "core/tree_builder.hpp"

namespace moecast {
namespace {

Mark mark_of(const YAML::Mark& mark) {
  return mark.is_null() ? Mark{} : Mark{mark.line + 1, mark.column + 1};
}

/// yaml-cpp's node API keeps the first of two equal keys and has no marks on keys; its events show
/// both.
class TreeEvents : public YAML::EventHandler {
 public:
  TreeEvents(std::string_view text, TreeBuilder& builder) : text_(text), builder_(builder) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) {
      builder_.stop(mark_of(mark), "a second document starts here", "keep one document per file");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (builder_.expects_key()) builder_.stop(mark_of(mark), "a key is missing or null");
    add(mark, Node::Kind::null, "", false);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    builder_.stop(mark_of(mark), "aliases (*name) are not accepted",
                  "write the value out, or put it in quotes if it is text");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    // yaml-cpp gives "!" to quoted and block scalars, and to a tag that is a lone exclamation mark.
    const bool quoted = tag == "!" && !starts_with(mark, '!');
    if (!quoted) refuse_tag(mark, tag);
    if (quoted) require_end_of_quotes(mark);
    add(mark, Node::Kind::scalar, value, quoted);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(Node::Kind::sequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { builder_.end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(Node::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { builder_.end(); }

 private:
  void begin(Node::Kind kind, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    builder_.begin(kind, mark_of(mark));
  }
  void add(const YAML::Mark& mark, Node::Kind kind, const std::string& text, bool quoted) {
    if (builder_.expects_key()) {
      builder_.key(mark_of(mark), text);
      return;
    }
    Node node;
    node.kind = kind;
    node.mark = mark_of(mark);
    node.scalar = text;
    node.quoted = quoted;
    builder_.value(std::move(node));
  }
  [[nodiscard]] bool starts_with(const YAML::Mark& mark, char c) const {
    const auto at = static_cast<std::size_t>(mark.pos);
    return at < text_.size() && text_[at] == c;
  }
  /// yaml-cpp takes the end of the file, after a line end, for the end of a quoted scalar.
  void require_end_of_quotes(const YAML::Mark& mark) {
    if (!starts_with(mark, '"') && !starts_with(mark, '\'')) return;
    auto at = static_cast<std::size_t>(mark.pos);
    const char quote = text_[at];
    const std::string_view escaped = quote == '"' ? "\\" : "''";  // "\x" or ''
    for (++at; at < text_.size(); ++at) {
      if (text_.substr(at).starts_with(escaped)) {
        ++at;
      } else if (text_[at] == quote) {
        return;
      }
    }
    builder_.stop(mark_of(mark), "the quotes are never closed");
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      builder_.problem(mark_of(mark), "anchors (&name) are not accepted",
                       "put the value in quotes if it is text");
    }
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?") {
      builder_.problem(mark_of(mark), fmt::format("tags are not accepted: {}", quoted_excerpt(tag)),
                       "remove it; quotes make a value text");
    }
  }

  std::string_view text_;
  TreeBuilder& builder_;
  int documents_ = 0;
};

std::string syntax_hint(const std::string& message) {
  if (message.starts_with(YAML::ErrorMsg::UNKNOWN_ANCHOR) ||
      message.starts_with(YAML::ErrorMsg::UNKNOWN_TOKEN)) {
    return "put text that starts with a special character in quotes";
  }
  if (message.starts_with(YAML::ErrorMsg::MAP_VALUE)) {
    return "check the indentation, and put text that holds ': ' in quotes";
  }
  return "";
}

/// yaml-cpp takes a tab in the indentation for part of a scalar of the line before, which loses
/// keys silently.
bool report_tabs(std::string_view text, TreeBuilder& builder) {
  for (std::size_t start = 0, line = 1; start < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view whole = text.substr(start, end - start);
    const std::size_t first = whole.find_first_not_of(" \t\r");
    const std::size_t tab = whole.find('\t');
    if (first != std::string_view::npos && whole[first] != '#' && tab < first) {
      builder.problem({static_cast<int>(line), static_cast<int>(tab) + 1},
                      "a tab in the indentation", "indent with spaces");
      return true;
    }
    start = end + 1;
  }
  return false;
}

}  // namespace

void read_yaml(std::string_view text, Document& doc, Diagnostics& problems) {
  TreeBuilder builder(doc, problems);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool flow = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  if (!flow && report_tabs(text, builder)) return;
  std::istringstream stream{std::string(text)};
  TreeEvents events(text, builder);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(events)) {
    }
  } catch (const StopReading&) {
  } catch (const YAML::Exception& error) {
    std::string message = error.msg;  // may end in half a UTF-8 sequence
    std::erase_if(message, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    problems.push_back(
        doc.problem(mark_of(error.mark), "", "not valid YAML: " + message, syntax_hint(message)));
  }
}

}  // namespace moecast
