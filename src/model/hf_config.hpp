#pragma once
/// A HF config.json as a bag of quantities: whichever alias, whichever nesting level, with the
/// place to blame.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/document.hpp"
#include "model/hf_architectures.hpp"

namespace moecast {

/// The map that holds the language model's shape: descends through text_config, llm_config,
/// thinker_config, language_config.
const Node* language_scope(const Node& root);
Node* language_scope(Node& root);

class HfConfig {
 public:
  /// `doc` and `problems` must outlive the config. The root must be a map.
  HfConfig(const Document& doc, const Node& root, Diagnostics& problems);

  /// The value of a field, named by its canonical spelling, under any alias; nullptr when absent or
  /// null. Aliases that are present with different values are a problem. Marks the field as asked
  /// for.
  const Node* find(std::string_view field);
  [[nodiscard]] bool has(std::string_view field) { return find(field) != nullptr; }

  /// A whole number >= 0. A list with one value throughout (per-layer spelling) is that value.
  int count(std::string_view field, int fallback = 0);
  /// A whole number >= 1; absence is a problem, answered with 1 so that reading can go on.
  int required(std::string_view field, std::string hint = "");
  bool flag(std::string_view field, bool fallback);
  std::string text(std::string_view field);
  /// A list field as integers or words; empty when absent or not a list.
  std::vector<int> integers(std::string_view field);
  std::vector<std::string> words(std::string_view field);

  void complain(std::string_view field, std::string message, std::string hint = "");
  [[nodiscard]] const std::vector<const Node*>& scopes() const { return scopes_; }
  /// Canonical names of the fields that were looked for.
  [[nodiscard]] const std::set<std::string>& asked() const { return asked_; }
  [[nodiscard]] std::string architecture_name() const;
  [[nodiscard]] const HfArchitecture* architecture() const;
  /// False for an unknown architecture.
  [[nodiscard]] bool has_trait(HfTrait trait) const;
  [[nodiscard]] const Document& document() const { return doc_; }
  [[nodiscard]] Diagnostics& problems() { return problems_; }

 private:
  struct Hit {
    const Node::Entry* entry = nullptr;
    std::string path;
  };
  Hit lookup(std::string_view field) const;
  int whole_number(const Node& node, std::string_view field, int least);
  std::string outer_text(std::string_view key) const;

  const Document& doc_;
  Diagnostics& problems_;
  std::vector<const Node*>
      scopes_;  ///< innermost first, then its ffn_config / attn_config, then the outer levels
  std::vector<std::string> prefixes_;  ///< dotted path of each scope
  std::set<std::string> asked_;
  std::set<std::string> clashes_;  ///< fields already reported as contradictory
};

}  // namespace moecast
