#pragma once
/// What the YAML and the JSON reader share: events in, a Node tree out, duplicate keys and depth
/// checked.
#include <string>
#include <unordered_map>
#include <vector>

#include "core/document.hpp"

namespace moecast {

/// Thrown by TreeBuilder, caught by the readers: the problem is reported and nothing after it can
/// be read.
struct StopReading {};

class TreeBuilder {
 public:
  TreeBuilder(Document& doc, Diagnostics& problems) : doc_(doc), problems_(problems) {}

  [[nodiscard]] bool expects_key() const;
  void begin(Node::Kind kind, Mark mark);  ///< a map or a sequence
  void end();
  void key(Mark mark, std::string text);
  void value(Node node);
  void problem(Mark at, std::string message, std::string hint = "");  ///< at the current path
  [[noreturn]] void stop(Mark at, std::string message, std::string hint = "");

 private:
  struct Frame {
    Node node;
    bool has_key = false;  ///< the last entry waits for its value
    std::unordered_map<std::string, Mark> seen;
  };
  void refuse_nul(Mark at, const std::string& text);
  [[nodiscard]] std::string path() const;

  Document& doc_;
  Diagnostics& problems_;
  std::vector<Frame> open_;
};

/// The readers behind parse_document and parse_value; problems go to the list, the tree to
/// doc.root.
void read_yaml(std::string_view text, Document& doc, Diagnostics& problems);
void read_json(std::string_view text, Document& doc, Diagnostics& problems);

}  // namespace moecast
