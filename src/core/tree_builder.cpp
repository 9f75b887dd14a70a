#include "core/tree_builder.hpp"

#include <fmt/format.h>

#include "core/text.hpp"

namespace moecast {

bool TreeBuilder::expects_key() const {
  return !open_.empty() && open_.back().node.is_map() && !open_.back().has_key;
}

void TreeBuilder::begin(Node::Kind kind, Mark mark) {
  if (expects_key())
    stop(mark, "a key must be a single name, not a map or a list", "is a closing bracket missing?");
  if (open_.size() == kMaxDepth) {
    stop(mark, fmt::format("more than {} levels of nesting", kMaxDepth));
  }
  Frame frame;
  frame.node.kind = kind;
  frame.node.mark = mark;
  open_.push_back(std::move(frame));
}

void TreeBuilder::end() {
  Node done = std::move(open_.back().node);
  open_.pop_back();
  value(std::move(done));
}

void TreeBuilder::key(Mark mark, std::string text) {
  refuse_nul(mark, text);
  Frame& frame = open_.back();
  const auto [first, is_new] = frame.seen.emplace(text, mark);
  frame.node.entries.push_back({std::move(text), mark, {}});
  frame.has_key = true;
  if (!is_new) {
    problem(mark,
            fmt::format("duplicate key {}, first given at line {}, column {}",
                        quoted_excerpt(first->first), first->second.line, first->second.column),
            "keep one of them");
  }
}

void TreeBuilder::value(Node node) {
  refuse_nul(node.mark, node.scalar);
  if (open_.empty()) {
    doc_.root = std::move(node);
    return;
  }
  Frame& frame = open_.back();
  if (frame.node.is_sequence()) {
    frame.node.items.push_back(std::move(node));
    return;
  }
  Node::Entry& entry = frame.node.entries.back();
  // yaml-cpp marks a value that is not there with the token that follows it, often on another line.
  if (node.is_null() && node.mark.line != entry.mark.line) node.mark = entry.mark;
  entry.value = std::move(node);
  frame.has_key = false;
}

void TreeBuilder::problem(Mark at, std::string message, std::string hint) {
  constexpr std::size_t kMostProblems = 100;
  problems_.push_back(doc_.problem(at, path(), std::move(message), std::move(hint)));
  if (problems_.size() < kMostProblems) return;
  problems_.push_back(doc_.problem(at, "", "too many problems; the rest of the file was not read"));
  throw StopReading{};
}

void TreeBuilder::stop(Mark at, std::string message, std::string hint) {
  problem(at, std::move(message), std::move(hint));
  throw StopReading{};
}

// An escape ("\\0", "\\u0000") can make one, and it would cut file names and messages short.
void TreeBuilder::refuse_nul(Mark at, const std::string& text) {
  if (text.find('\0') != std::string::npos) problem(at, "a NUL character in text", "remove it");
}

std::string TreeBuilder::path() const {
  constexpr std::size_t kLongestKey = 200;
  std::string out;
  for (const Frame& frame : open_) {
    if (frame.node.is_sequence()) {
      out += fmt::format("[{}]", frame.node.items.size());
    } else if (frame.has_key) {
      const std::string& key = frame.node.entries.back().key;
      if (!out.empty()) out += '.';
      out += key.size() > kLongestKey ? quoted_excerpt(key) : key;
    }
  }
  return out;
}

}  // namespace moecast
