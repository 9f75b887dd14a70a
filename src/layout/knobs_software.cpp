// The rows of software and model_overrides.
#include "layout/knob_values.hpp"

namespace moecast {
namespace {

/// An open map of name to Kind's value.
template <typename Kind, typename T>
struct MapKind {
  Kind kind;
  std::string_view words;
  static constexpr bool kAsWritten = Kind::kAsWritten;
  std::string domain() const { return std::string(words); }
  std::string parse(const Value& value, std::map<std::string, T>& out) const {
    out.clear();
    if (value.is_null()) return "";
    if (!value.is_object()) return must_be("a " + domain(), value);
    for (const auto& [name, item] : value.items()) {
      if (name.empty()) return "has an entry without a name; name it";
      std::string problem = kind.parse(item, out[name]);
      if (!problem.empty()) return name + " " + problem;
    }
    return "";
  }
  Value show(const std::map<std::string, T>& map) const {
    Value value = Value::object();
    for (const auto& [name, item] : map) value[name] = kind.show(item);
    return value;
  }
};
using FeaturesKind = MapKind<BooleanKind, bool>;
using EnvKind = MapKind<TextKind, std::string>;

Knob version(std::string_view key, std::string_view help, std::string Software::*member) {
  return knob({key, "", "", "", "null", help}, field(member),
              TextKind{.null_is_empty = true, .words = "version"});
}

}  // namespace

std::vector<Knob> software_knobs() {
  return {
      knob({"software.container", "", "", "", "null",
            "Name of the software stack (hwdb/stacks), which brings versions and features."},
           field(&Software::container), TextKind{.null_is_empty = true, .words = "name"}),
      version("software.pytorch", "PyTorch version; gates rules.", &Software::pytorch),
      version("software.transformer_engine", "Transformer Engine version; gates rules.",
              &Software::transformer_engine),
      version("software.megatron_core", "Megatron-Core version; gates rules.",
              &Software::megatron_core),
      version("software.bridge", "Megatron-Bridge version; gates rules.", &Software::bridge),
      knob({"software.features", "", "", "", "{}",
            "Switches what a stack has, such as fused_grouped_mlp, paged_stash, fp8_attention, "
            "router_fusion, permute_fusion, static_dispatch, cpu_binding."},
           field(&Software::features), FeaturesKind{{}, "map of name: true | false"}),
      knob({"software.env", "", "", "env_vars", "{}",
            "Environment variables that change time, such as {CUDA_DEVICE_MAX_CONNECTIONS: 32}."},
           field(&Software::env), EnvKind{{.words = "a scalar"}, "map of variable: scalar"}),
      knob({"model_overrides", "", "", "", "{}",
            "Hugging Face config keys to replace, such as {num_hidden_layers: 4}."},
           field(&Run::model_overrides), OverridesKind{"map of Hugging Face config keys"}),
  };
}

}  // namespace moecast
