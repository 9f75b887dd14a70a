#include "core/document.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "core/text.hpp"
#include "core/tree_builder.hpp"

namespace moecast {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlanks = " \t\r\n";

bool starts_flow(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

/// JSON, or YAML's flow style in a file that says it is YAML.
void read_flow(std::string_view text, Document& doc, Diagnostics& problems) {
  read_json(text, doc, problems);
  if (problems.empty() || !(doc.file.ends_with(".yaml") || doc.file.ends_with(".yml"))) return;
  problems.clear();
  read_yaml(text, doc, problems);
}

}  // namespace

Result<Document> parse_document(std::string_view text, const std::string& file_name) {
  Document doc{file_name, {}};
  Diagnostics problems;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  check_text(text, doc, problems);
  if (!problems.empty()) return problems;
  if (starts_flow(text)) {
    read_flow(text, doc, problems);
  } else {
    read_yaml(text, doc, problems);
  }
  if (problems.empty() && doc.root.is_null()) {
    problems.push_back(doc.problem({1, 1}, "", "the file is empty"));
  }
  if (!problems.empty()) return problems;
  return doc;
}

Result<Document> read_document(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    return Diagnostic{path, 0, 0, "", fmt::format("cannot be read: {}", why), ""};
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return refuse("it is a folder, not a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return refuse(std::strerror(errno != 0 ? errno : EIO));
  std::string text(kMaxFileBytes + 1, '\0');  // one more than allowed: check_text then says so
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return refuse(std::strerror(errno != 0 ? errno : EIO));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_document(text, path);
}

Result<Node> parse_value(std::string_view text, const std::string& file_name) {
  Document doc{file_name, {}};
  Diagnostics problems;
  check_text(text, doc, problems);
  if (problems.empty()) read_yaml(text, doc, problems);
  const Node& root = doc.root;
  if (problems.empty() && (root.is_map() || root.is_sequence()) && !starts_flow(text)) {
    problems.push_back(
        doc.problem(root.mark, "", "expected a single value",
                    "write lists as [a, b], maps as {a: b}, and text with ': ' in quotes"));
  }
  if (!problems.empty()) return problems;
  return std::move(doc.root);
}

}  // namespace moecast
