#pragma once
/// Megatron's moe_layer_freq as text: an integer, or a Python list expression of [..], +, * and
/// parentheses. Ref: megatron/training/arguments.py moe_freq_type.
#include <optional>
#include <string_view>
#include <vector>

namespace moecast {

/// nullopt for anything else, and for lists of more than 100,000 layers. "2" gives {2}.
std::optional<std::vector<int>> parse_layer_pattern(std::string_view text);

}  // namespace moecast
