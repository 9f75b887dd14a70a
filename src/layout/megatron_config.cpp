#include "layout/megatron_config.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <unordered_map>

#include <fmt/format.h>

#include "core/document.hpp"
#include "layout/layer_pattern.hpp"

namespace moecast {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEnvironment = "env.";

// Each take(value, out) returns what is wanted, or "" when the value was taken.

std::string take(const Json& value, bool& out) {
  if (!value.is_boolean()) return "true or false";
  out = value.get<bool>();
  return "";
}
std::string take(const Json& value, int& out) {
  constexpr double kLimit = std::numeric_limits<int>::max();
  if (!value.is_number()) return "an integer";
  const double number = value.get<double>();
  if (!(std::abs(number) <= kLimit) || number != std::floor(number)) return "a 32-bit integer";
  out = static_cast<int>(number);
  return "";
}
std::string take(const Json& value, double& out) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) return "a number";
  out = value.get<double>();
  return "";
}
std::string take(const Json& value, std::string& out) {
  if (!value.is_string()) return "text";
  out = value.get<std::string>();
  return "";
}
std::string take(const Json& value, Word& out) {
  if (!value.is_string()) return "a word";
  out = find_word(value.get_ref<const std::string&>());
  return "";
}
std::string take(const Json& value, Words& out) {
  Words words;
  words.given = true;
  const auto add = [&words](const Json& item) {
    if (!item.is_string()) return false;
    words.add(find_word(item.get_ref<const std::string&>()));
    return true;
  };
  const bool good = value.is_array() ? std::all_of(value.begin(), value.end(), add) : add(value);
  if (!good || words.count > 10'000) return "a list of words";
  out = words;
  return "";
}
/// Lists of integers are also written as a Python expression, "([0]*3+[1]*58)".
std::string take(const Json& value, std::vector<int>& out) {
  if (value.is_string()) {
    const auto list = parse_layer_pattern(value.get_ref<const std::string&>());
    if (!list) return "a list such as [1,0,1] or ([0]*3+[1]*58)";
    out = *list;
    return "";
  }
  std::vector<int> list;
  for (const Json& item : value.is_array() ? value : Json::array({value})) {
    if (!take(item, list.emplace_back()).empty()) return "a list of integers";
  }
  out = std::move(list);
  return "";
}
std::string take(const Json& value, std::vector<double>& out) {
  std::vector<double> list;
  for (const Json& item : value.is_array() ? value : Json::array({value})) {
    if (!take(item, list.emplace_back()).empty()) return "a list of numbers";
  }
  out = std::move(list);
  return "";
}
template <typename T>
std::string take(const Json& value, std::optional<T>& out) {
  T taken{};
  std::string wanted = take(value, taken);
  if (wanted.empty()) out = taken;
  return wanted;
}

Json shown(Word word) { return word ? Json(text_of(word)) : Json(); }
Json shown(Words words) { return words.given ? Json(texts_of(words)) : Json(); }
template <typename T>
Json shown(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
template <typename T>
Json shown(const T& value) {
  if constexpr (std::is_class_v<T>) {
    return value.empty() ? Json() : Json(value);
  } else {
    return value;
  }
}

/// The words of `value` that the vocabulary lacks, as they were written.
std::string others(const Json& value) {
  std::string out;
  const auto add = [&out](const Json& item) {
    if (!item.is_string()) return;
    const auto& text = item.get_ref<const std::string&>();
    if (find_word(text).id == kOtherWord) out += (out.empty() ? "" : " ") + text;
  };
  if (value.is_array()) {
    std::for_each(value.begin(), value.end(), add);
  } else {
    add(value);
  }
  return out;
}

std::string brief(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

Diagnostic option_problem(std::string_view name, std::string message, std::string hint) {
  Diagnostic d;
  d.key = name;
  d.message = std::move(message);
  d.hint = std::move(hint);
  return d;
}

std::optional<Diagnostic> set_environment(MegatronConfig& config, std::string_view name,
                                          const Json& value) {
  const std::string variable(name.substr(kEnvironment.size()));
  if (value.is_null()) {
    config.env.erase(variable);
  } else if (value.is_string()) {
    config.env[variable] = value.get<std::string>();
  } else if (value.is_number() || value.is_boolean()) {
    config.env[variable] = value.dump();
  } else {
    return option_problem(name, "must be text, not " + brief(value), "");
  }
  return std::nullopt;
}

template <typename T>
constexpr bool kKeepsWords = std::is_same_v<T, Word> || std::is_same_v<T, Words>;

}  // namespace

std::string_view to_string(Flavour flavour) {
  return flavour == Flavour::bridge ? "bridge" : "megatron-lm";
}

std::vector<std::string> texts_of(Words words) {
  std::vector<std::string> texts;
  for (std::size_t i = 1; i < kOtherBit; ++i) {
    if (words.bits >> i & 1) texts.emplace_back(kMegatronWords[i]);
  }
  return texts;
}

const MegatronField* find_megatron_field(std::string_view name) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const MegatronField*> map;
    for (const MegatronField& f : megatron_fields()) map.emplace(f.name, &f);
    for (const MegatronField& f : megatron_fields()) {
      const std::string_view path = f.bridge;
      if (!path.empty()) map.emplace(path.substr(path.rfind('.') + 1), &f);
    }
    return map;
  }();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

std::vector<std::string> megatron_field_names() {
  std::vector<std::string> names;
  for (const MegatronField& f : megatron_fields()) names.emplace_back(f.name);
  return names;
}

MegatronConfig default_config(Flavour flavour) {
  MegatronConfig config;
  if (flavour == Flavour::megatron_lm) return config;
  for (const MegatronField& f : megatron_fields()) {
    if (!f.bridge_default.empty()) set(config, f.name, Json::parse(f.bridge_default));
  }
  return config;
}

std::optional<Diagnostic> set(MegatronConfig& config, std::string_view name, const Json& value) {
  if (name.starts_with(kEnvironment)) return set_environment(config, name, value);
  const MegatronField* field = find_megatron_field(name);
  if (field == nullptr) {
    const std::string nearest = nearest_name(std::string(name), megatron_field_names());
    return option_problem(name, "is no option of Megatron that moecast knows",
                          nearest.empty() ? "" : "did you mean '" + nearest + "'?");
  }
  return std::visit(
      [&](auto member) -> std::optional<Diagnostic> {
        auto& out = config.*member;
        using T = std::remove_reference_t<decltype(out)>;
        if (value.is_null()) {
          if constexpr (std::is_class_v<T>) out = T{};
          return std::nullopt;
        }
        const std::string wanted = take(value, out);
        if (!wanted.empty())
          return option_problem(name, fmt::format("must be {}, not {}", wanted, brief(value)), "");
        if constexpr (kKeepsWords<T>) {
          std::string unknown = others(value);
          if (!unknown.empty()) config.other_words[std::string(field->name)] = std::move(unknown);
        }
        return std::nullopt;
      },
      field->member);
}

Json get(const MegatronConfig& config, const MegatronField& field) {
  return std::visit([&config](auto member) { return shown(config.*member); }, field.member);
}

}  // namespace moecast
