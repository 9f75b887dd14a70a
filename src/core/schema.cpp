#include <fmt/format.h>

#include "core/document.hpp"
#include "core/text.hpp"

namespace moecast {
namespace {

struct Schema {
  std::string_view kind;
  std::optional<long long> version;
};

Schema split(std::string_view text) {
  constexpr std::string_view kPrefix = "moecast/";
  const std::size_t at = text.find('@');
  if (!text.starts_with(kPrefix) || at == std::string_view::npos) return {};
  Node version;
  version.kind = Node::Kind::scalar;
  version.scalar = text.substr(at + 1);
  return {text.substr(kPrefix.size(), at - kPrefix.size()), version.as_int()};
}

std::string understood(std::string_view kind, int version) {
  std::string out;
  for (int v = 1; v <= version; ++v)
    out += fmt::format("{}moecast/{}@{}", v > 1 ? ", " : "", kind, v);
  return out;
}

}  // namespace

void check_schema(const Document& doc, std::string_view kind, int version, Diagnostics& problems) {
  const std::string newest = fmt::format("moecast/{}@{}", kind, version);
  const Node* node = doc.root.find("schema");
  if (node == nullptr) {
    const Mark at = doc.root.mark.line > 0 ? doc.root.mark : Mark{1, 1};
    problems.push_back(doc.problem(at, "schema", "the schema line is missing",
                                   fmt::format("add the line 'schema: {}'", newest)));
    return;
  }
  const std::string text = node->as_string().value_or("");
  const Schema found = split(text);
  if (found.kind == kind && found.version && *found.version >= 1 && *found.version <= version)
    return;
  const std::string_view what = found.kind.empty()   ? "is not a schema of moecast"
                                : found.kind != kind ? "is another kind of file"
                                                     : "is a version that is not understood";
  problems.push_back(doc.problem(node->mark, "schema",
                                 fmt::format("{} {}", quoted_excerpt(text), what),
                                 fmt::format("understood here: {}", understood(kind, version))));
}

}  // namespace moecast
