#pragma once
/// test, [ ], [[ ]] and (( )): what can be said without running the script.
#include <cstdint>

#include "core/shell_parts.hpp"

namespace moecast::shell {

enum class Truth : std::uint8_t { no, yes, unknown };

/// True for the first word of a test command.
bool is_test(std::string_view word);
/// `words` from `first` on are the test, brackets included.
Truth decide(const std::vector<Token>& words, std::size_t first, Scope& scope);

}  // namespace moecast::shell
