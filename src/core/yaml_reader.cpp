#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>

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
  explicit TreeEvents(TreeBuilder& builder) : builder_(builder) {}

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
    if (tag != "!") refuse_tag(mark, tag);
    add(mark, Node::Kind::scalar, value, tag == "!");
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

  TreeBuilder& builder_;
  int documents_ = 0;
};

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
  TreeEvents events(builder);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(events)) {
    }
  } catch (const StopReading&) {
  } catch (const YAML::Exception& error) {
    problems.push_back(doc.problem(mark_of(error.mark), "", "not valid YAML: " + error.msg));
  }
}

}  // namespace moecast
