#pragma once
/// A YAML or JSON file as a tree in which every key and value knows its line and column. Policy
/// (docs/formats.md): duplicate keys, anchors, aliases, tags and several documents are errors; 4
/// MiB and depth 32 are the limits.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "moecast/result.hpp"

namespace moecast {

struct Mark {
  int line = 0;    ///< 1-based, 0 = unknown
  int column = 0;  ///< 1-based
};

struct Node {
  enum class Kind : std::uint8_t { null, scalar, sequence, map };
  struct Entry;
  Kind kind = Kind::null;
  Mark mark;
  std::string scalar;   ///< raw text of a scalar
  bool quoted = false;  ///< a quoted scalar is always a string
  std::vector<Node> items;
  std::vector<Entry> entries;  ///< in file order

  [[nodiscard]] bool is_null() const { return kind == Kind::null; }
  [[nodiscard]] bool is_map() const { return kind == Kind::map; }
  [[nodiscard]] bool is_sequence() const { return kind == Kind::sequence; }
  [[nodiscard]] bool is_scalar() const { return kind == Kind::scalar; }
  [[nodiscard]] const Node* find(std::string_view key) const;
  /// Strict scalars: the whole text must be a number, finite; bool is true|false only; a quoted
  /// scalar is neither.
  [[nodiscard]] std::optional<double> as_double() const;
  [[nodiscard]] std::optional<long long> as_int() const;
  [[nodiscard]] std::optional<bool> as_bool() const;
  [[nodiscard]] std::optional<std::string> as_string() const;  ///< any scalar's text
  /// Types by the rules above: null, bool, integer, double, string; maps keep their order.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
};
struct Node::Entry {
  std::string key;
  Mark mark;
  Node value;
};

struct Document {
  std::string file;  ///< as the user wrote it
  Node root;
  [[nodiscard]] Diagnostic problem(Mark at, std::string key, std::string message,
                                   std::string hint = "") const {
    return {file, at.line, at.column, std::move(key), std::move(message), std::move(hint)};
  }
};

/// Reads a file; JSON when its first non-blank character is { or [, else YAML. Every syntax problem
/// and duplicate key is reported.
Result<Document> read_document(const std::string& path);
Result<Document> parse_document(std::string_view text, const std::string& file_name);
/// A single YAML scalar or flow value, as `--set key=value` takes it.
Result<Node> parse_value(std::string_view text, const std::string& file_name);

/// The nearest of `candidates` by edit distance <= max(2, length of the longer / 3), the first of
/// equals; empty if none is near. Case, and - against _, do not count.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);
/// "did you mean 'x'?" or "" (then, if the list is short, "one of a, b, c").
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

/// Checks the `schema:` line: must be moecast/<kind>@<version> with a version that is understood.
void check_schema(const Document& doc, std::string_view kind, int version, Diagnostics& problems);

/// Reads fields of one map node, remembers which keys were asked for, and reports unknown keys
/// (with the nearest name) and wrong types. Owner of the messages: `path` prefixes every key.
class MapReader {
 public:
  MapReader(const Document& doc, const Node& node, std::string path, Diagnostics& problems);
  /// The child node, or nullptr when absent; marks the key as known.
  const Node* get(std::string_view key);
  const Node* require(std::string_view key);  ///< reports when absent
  double number(std::string_view key, double fallback);
  double required_number(std::string_view key);
  int integer(std::string_view key, int fallback);
  int required_integer(std::string_view key);
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string fallback);
  std::string required_text(std::string_view key);
  void ignore(std::string_view key);  ///< known, not used
  void finish();                      ///< reports unknown keys; call once at the end
  void complain(const Node& at, std::string_view key, std::string message, std::string hint = "");
  [[nodiscard]] std::string path_of(std::string_view key) const;

 private:
  const Document& doc_;
  const Node& node_;
  std::string path_;
  Diagnostics& problems_;
  std::vector<std::string> known_;
};

/// Writes `text` to `path` whole or not at all (temporary file in the same folder, then rename).
/// Returns an error message or "".
std::string write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// Emits ordered JSON as readable YAML (block maps, flow for short scalar lists); reading it back
/// gives the same tree.
std::string to_yaml(const nlohmann::ordered_json& value);

/// Where hwdb/ and configs/ are: $MOECAST_DATA, else beside the installed binary
/// (../share/moecast), else the source tree.
std::filesystem::path data_dir();

}  // namespace moecast
