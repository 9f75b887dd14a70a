#pragma once
/// The `parameters:` and `fit:` sections of a stack file.
#include <map>
#include <string>

#include "core/document.hpp"
#include "moecast/stack.hpp"

namespace moecast {

std::map<std::string, ParameterValue> read_stack_parameters(const Document& doc, const Node& node,
                                                            Diagnostics& problems);
StepFit read_step_fit(const Document& doc, const Node& node, Diagnostics& problems);

}  // namespace moecast
