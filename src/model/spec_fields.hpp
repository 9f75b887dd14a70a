#pragma once
/// The fields of a ModelSpec as tables: one row per field, for the model YAML (Megatron's name),
/// overrides (HF's name) and checks.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moecast/model_spec.hpp"

namespace moecast {

/// A field of T: whole number or flag; `hf` is the canonical HF spelling (hf_fields.hpp), empty if
/// an override can't set it.
template <typename T>
struct SpecField {
  std::string_view key;
  std::string_view hf;
  int T::*number = nullptr;
  bool T::*flag = nullptr;
  std::uint32_t required =
      0;  ///< bit per MixerKind that cannot be without it (other tables: any bit = required)
};

std::span<const SpecField<ModelSpec>> model_fields();
std::span<const SpecField<MoeSpec>> moe_fields();
std::span<const SpecField<Mixer>> mixer_fields();

std::string_view mixer_kind_name(MixerKind kind);
constexpr std::uint32_t bit(MixerKind kind) { return 1u << static_cast<unsigned>(kind); }

/// Something a spec may not say, under both names of the culprit.
struct SpecProblem {
  std::string_view hf;
  std::string_view key;
  std::string message;
};
std::vector<SpecProblem> check_spec(const ModelSpec& m);

}  // namespace moecast
