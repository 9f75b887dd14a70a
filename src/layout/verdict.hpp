#pragma once
/// One line of `check --batch`: a configuration in Megatron's names -> what its launcher would say.
#include <string>

#include <nlohmann/json.hpp>

#include "layout/megatron_knobs.hpp"

namespace moecast {

/// {"id","verdict":"accepted|rejected|unreadable","rules":[ids],"later":[ids]}; "problems" says
/// what could not be read. Never throws.
nlohmann::ordered_json verdict_of_line(const std::string& line, Flavour flavour);

}  // namespace moecast
