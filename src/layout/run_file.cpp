#include "layout/run_file.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "core/text.hpp"
#include "layout/knobs.hpp"

namespace moecast {
namespace {

constexpr std::string_view kSchema = "moecast/run@1";

/// The node's value; scalars of a knob that is taken as written stay text, so that version 2.10 is
/// not 2.1.
Value value_of(const Node& node, bool as_written) {
  if (!as_written || node.is_null()) return node.to_json();
  if (node.is_scalar()) return node.scalar;
  Value value = node.is_map() ? Value::object() : Value::array();
  for (const Node& item : node.items) value.push_back(value_of(item, true));
  for (const Node::Entry& entry : node.entries) value[entry.key] = value_of(entry.value, true);
  return value;
}

/// Knobs say "what is wrong; hint".
Diagnostic diagnostic(const std::string& file, Mark at, std::string key, const std::string& text) {
  const std::size_t split = text.rfind("; ");
  std::string hint = split == std::string::npos ? "" : text.substr(split + 2);
  return {file, at.line, at.column, std::move(key), text.substr(0, split), std::move(hint)};
}

bool is_section(std::string_view name) {
  const auto& table = knob_table();
  return std::any_of(table.begin(), table.end(),
                     [&](const Knob& knob) { return !name.empty() && knob.section() == name; });
}

/// Every key that a section takes; the top level also takes the sections.
std::vector<std::string> legal_keys(std::string_view section) {
  std::set<std::string> keys;
  for (const Knob& knob : knob_table()) {
    if (knob.section() == section) {
      for (std::string& name : knob.names()) keys.insert(std::move(name));
    } else if (section.empty()) {
      keys.insert(std::string(knob.section()));
    }
  }
  if (section.empty()) keys.insert("schema");
  return {keys.begin(), keys.end()};
}

std::string joined(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

/// Like suggestion(); tensor_parallel_size, as many frameworks call it, is near
/// tensor_model_parallel_size too.
std::string hint_for(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::string_view kModel = "model_";
  std::map<std::string, std::string> meant;
  std::vector<std::string> spellings = names;
  for (const std::string& name : names) {
    const std::size_t at = name.find(kModel);
    if (at == std::string::npos) continue;
    spellings.push_back(std::string(name).erase(at, kModel.size()));
    meant[spellings.back()] = name;
  }
  const std::string near = nearest_name(word, spellings);
  const auto found = meant.find(near);
  return found == meant.end() ? suggestion(word, names)
                              : fmt::format("did you mean '{}'?", found->second);
}

class RunReader {
 public:
  RunReader(const Document& doc, Run& run, Diagnostics& problems)
      : doc_(doc), run_(run), problems_(problems) {}

  void read() {
    for (const Node::Entry& entry : doc_.root.entries) {
      if (entry.key == "schema") continue;
      if (is_section(entry.key)) {
        read_section(entry);
      } else {
        read_key("", entry);
      }
    }
  }

 private:
  void read_section(const Node::Entry& section) {
    if (section.value.is_null()) return;
    if (!section.value.is_map()) {
      problems_.push_back(doc_.problem(section.value.mark, section.key, "must be a map of keys"));
      return;
    }
    for (const Node::Entry& entry : section.value.entries) read_key(section.key, entry);
  }

  void read_key(std::string_view section, const Node::Entry& entry) {
    const Knob* knob = find_knob(joined(section, entry.key));
    if (knob == nullptr || knob->section() != section) return unknown(section, entry);
    const std::string key(knob->key);
    const auto [first, is_new] = seen_.emplace(knob, &entry);
    if (!is_new) {
      problems_.push_back(doc_.problem(
          entry.mark, key,
          fmt::format("is given twice, as '{}' on line {} and as '{}' on line {}",
                      first->second->key, first->second->mark.line, entry.key, entry.mark.line),
          "keep one of them"));
      return;
    }
    const std::string problem = knob->set(run_, value_of(entry.value, knob->as_written));
    if (!problem.empty()) {
      problems_.push_back(diagnostic(doc_.file, entry.value.mark, key, problem));
    }
  }

  void unknown(std::string_view section, const Node::Entry& entry) {
    const Knob* elsewhere = find_knob(entry.key);
    std::string hint = elsewhere != nullptr ? fmt::format("did you mean '{}'?", elsewhere->key)
                                            : hint_for(entry.key, legal_keys(section));
    problems_.push_back(
        doc_.problem(entry.mark, joined(section, entry.key), "unknown key", std::move(hint)));
  }

  const Document& doc_;
  Run& run_;
  Diagnostics& problems_;
  std::map<const Knob*, const Node::Entry*> seen_;
};

/// Knobs without a default that neither the file nor a --set gave.
void check_required(const Document& doc, const Run& run, Diagnostics& problems) {
  const Run untouched;
  for (const Knob& knob : knob_table()) {
    if (!knob.default_text.empty() || knob.get(run) != knob.get(untouched)) continue;
    const bool complained = std::any_of(problems.begin(), problems.end(),
                                        [&](const Diagnostic& d) { return d.key == knob.key; });
    if (complained) continue;
    const Node* section = doc.root.find(knob.section());
    problems.push_back(doc.problem(section != nullptr ? section->mark : doc.root.mark,
                                   std::string(knob.key), "is missing", std::string(knob.help)));
  }
}

/// The knob that a --set key names, and the rest of the key: software.features.paged_stash ->
/// features, paged_stash.
std::pair<const Knob*, std::string> split_target(const std::string& key) {
  for (std::size_t end = key.size(); end != std::string::npos && end > 0;
       end = key.rfind('.', end - 1)) {
    const Knob* knob = find_knob(std::string_view(key).substr(0, end));
    if (knob != nullptr) return {knob, end < key.size() ? key.substr(end + 1) : ""};
  }
  return {nullptr, ""};
}

/// `value` at the dotted `path` within an open map, whose other keys stay; elsewhere a map of that
/// one key.
Value value_within(const Knob& knob, const Run& run, const std::string& path, Value value) {
  Value whole = knob.is_map() ? knob.get(run) : Value::object();
  Value* at = &whole;
  std::size_t start = 0;
  for (std::size_t dot; (dot = path.find('.', start)) != std::string::npos; start = dot + 1) {
    at = &(*at)[path.substr(start, dot - start)];
    if (!at->is_object()) *at = Value::object();
  }
  (*at)[path.substr(start)] = std::move(value);
  return whole;
}

Diagnostic unknown_set_key(const std::string& key) {
  if (is_section(key)) {
    return diagnostic(
        "--set", {}, key,
        "is a section; set one of its keys, such as " + joined(key, legal_keys(key).front()));
  }
  return {"--set", 0, 0, key, "unknown key", hint_for(key, knob_names())};
}

}  // namespace

Result<Run> read_run(const std::string& path, const std::vector<std::string>& sets) {
  auto doc = read_document(path);
  if (!doc.ok()) return doc.problems();
  return run_from_document(doc.value(), sets);
}

Result<Run> run_from_document(const Document& doc, const std::vector<std::string>& sets) {
  if (!doc.root.is_map()) {
    return doc.problem(doc.root.mark, "", "a run file is a map of keys",
                       fmt::format("start with 'schema: {}'", kSchema));
  }
  Run run;
  run.base_dir = std::filesystem::path(doc.file).parent_path().string();
  Diagnostics problems;
  check_schema(doc, "run", 1, problems);
  RunReader(doc, run, problems).read();
  for (const std::string& assignment : sets) {
    for (Diagnostic& problem : apply_set(run, assignment)) problems.push_back(std::move(problem));
  }
  check_required(doc, run, problems);
  if (!problems.empty()) return problems;
  return run;
}

Diagnostics apply_set(Run& run, const std::string& assignment) {
  Diagnostics problems;
  check_text(assignment, {"--set", {}}, problems);
  if (!problems.empty()) return problems;
  const std::size_t equals = assignment.find('=');
  const std::string key = assignment.substr(0, equals);
  if (equals == std::string::npos || key.empty()) {
    return {{"--set", 0, 0, "", quoted_excerpt(assignment) + " is not key.path=value", ""}};
  }
  const auto [knob, path] = split_target(key);
  const bool too_deep = std::count(path.begin(), path.end(), '.') >= static_cast<long>(kMaxDepth);
  if (knob == nullptr || too_deep) return {unknown_set_key(key)};
  auto node = parse_value(assignment.substr(equals + 1), "--set");
  if (!node.ok()) {
    problems = node.problems();
    for (Diagnostic& problem : problems) problem.key = knob->key;
    return problems;
  }
  Value value = value_of(node.value(), knob->as_written);
  if (!path.empty()) value = value_within(*knob, run, path, std::move(value));
  const std::string problem = knob->set(run, value);
  if (!problem.empty())
    problems.push_back(diagnostic("--set", {}, std::string(knob->key), problem));
  return problems;
}

const Knob* knob_of_key(const std::string& key) { return split_target(key).first; }

nlohmann::ordered_json run_to_json(const Run& run) {
  Value tree{{"schema", kSchema}};
  for (const Knob& knob : knob_table()) {
    Value& parent = knob.section().empty() ? tree : tree[std::string(knob.section())];
    parent[std::string(knob.leaf())] = knob.get(run);
  }
  return tree;
}

Result<Run> run_from_json(const nlohmann::ordered_json& tree) {
  const Result<Document> document = parse_document(tree.dump(), "run");
  return document ? run_from_document(document.value()) : document.problems();
}

}  // namespace moecast
