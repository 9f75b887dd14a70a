#pragma once
/// Kinds of knob values. Each has parse(value, out), which returns "" or "what is wrong; hint",
/// show(value) and domain().
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/document.hpp"
#include "layout/enum_names.hpp"
#include "layout/knobs.hpp"

namespace moecast {

/// "must be <domain>, not <value>"
std::string must_be(const std::string& domain, const Value& value);

struct IntegerKind {
  int low, high;
  std::optional<int> null_is = std::nullopt;
  static constexpr bool kAsWritten = false;
  std::string parse(const Value& value, int& out) const;
  Value show(int value) const { return value == null_is ? Value(nullptr) : Value(value); }
  std::string domain() const;
};

struct NumberKind {
  double low, high;
  std::optional<double> null_is = std::nullopt;
  bool above_low = false;  ///< low itself is out
  static constexpr bool kAsWritten = false;
  std::string parse(const Value& value, double& out) const;
  Value show(double value) const { return value == null_is ? Value(nullptr) : Value(value); }
  std::string domain() const;
};

struct BooleanKind {
  static constexpr bool kAsWritten = false;
  static std::string parse(const Value& value, bool& out);
  static Value show(bool value) { return value; }
  static std::string domain() { return "true | false"; }
};

/// An open map, whose keys somebody else knows.
struct OverridesKind {
  std::string_view words;
  static constexpr bool kAsWritten = false;
  std::string domain() const { return std::string(words); }
  std::string parse(const Value& value, Value& out) const {
    if (!value.is_object() && !value.is_null()) return must_be("a " + domain(), value);
    out = value.is_null() ? Value::object() : value;
    return "";
  }
  static Value show(const Value& value) { return value; }
};

/// Any text; with null_is_empty, null stands for "".
struct TextKind {
  bool null_is_empty = false;
  std::string words = "text";
  static constexpr bool kAsWritten = true;
  std::string parse(const Value& value, std::string& out) const;
  Value show(const std::string& value) const {
    return null_is_empty && value.empty() ? Value(nullptr) : Value(value);
  }
  std::string domain() const { return null_is_empty ? "null | " + words : words; }
};

/// The index in `choices` that a value names, or what is wrong. true, false and null are names too;
/// none and null are one.
std::string parse_choice(const Value& value, const std::vector<std::string>& choices,
                         std::size_t& index);
Value show_choice(std::string_view text);
/// Indices of a list of distinct names.
std::string parse_names(const Value& value, const std::vector<std::string>& choices,
                        std::vector<std::size_t>& indices);
std::string join(const std::vector<std::string>& words, std::string_view separator);

/// One of the enum's spellings, or of some of them.
template <typename E>
struct ChoiceKind {
  std::vector<std::string> choices = enum_choices<E>();
  static constexpr bool kAsWritten = false;
  std::string parse(const Value& value, E& out) const {
    std::size_t index = 0;
    std::string problem = parse_choice(value, choices, index);
    if (problem.empty()) out = *enum_from_text<E>(choices[index]);
    return problem;
  }
  Value show(E value) const { return show_choice(enum_text(value)); }
  std::string domain() const { return join(choices, " | "); }
};

/// A list of distinct module names.
template <typename E>
struct ModulesKind {
  static constexpr bool kAsWritten = false;
  static std::string parse(const Value& value, ModuleSet<E>& out) {
    std::vector<std::size_t> indices;
    std::string problem = parse_names(value, enum_choices<E>(), indices);
    if (!problem.empty()) return problem;
    out = {};
    for (std::size_t index : indices) out.add(kEnumNames<E>[index].value);
    return problem;
  }
  static Value show(ModuleSet<E> value) { return Value(module_names(value)); }
  static std::string domain() { return "list of " + join(enum_choices<E>(), " | "); }
};

/// The words of a knob; the rest of the row is the field and the kind of its value.
struct KnobWords {
  std::string_view key, short_name, megatron_flag, bridge_key, default_text, help;
  bool translated = false;
};

inline auto field(auto Layout::*member) {
  return [member](auto& run) -> auto& { return run.layout.*member; };
}
inline auto field(auto Run::*member) {
  return [member](auto& run) -> auto& { return run.*member; };
}
inline auto field(auto Software::*member) {
  return [member](auto& run) -> auto& { return run.software.*member; };
}

template <typename Field, typename Kind>
Knob knob(const KnobWords& words, Field field_of, Kind kind) {
  Knob row{words.key,
           words.short_name,
           words.megatron_flag,
           words.bridge_key,
           kind.domain(),
           words.default_text,
           words.help,
           {},
           {},
           Kind::kAsWritten,
           words.translated};
  row.set = [field_of, kind](Run& run, const Value& value) {
    auto parsed = field_of(run);
    std::string problem = kind.parse(value, parsed);
    if (problem.empty()) field_of(run) = std::move(parsed);
    return problem;
  };
  row.get = [field_of, kind](const Run& run) { return kind.show(field_of(run)); };
  return row;
}

/// The sections of the table, one file each.
std::vector<Knob> place_knobs();     ///< model, cluster, train, layout, precision
std::vector<Knob> moe_knobs();       ///< moe
std::vector<Knob> memory_knobs();    ///< recompute, offload, cuda_graph
std::vector<Knob> training_knobs();  ///< optimizer, comm, fsdp
std::vector<Knob> software_knobs();  ///< software, model_overrides

}  // namespace moecast
