#pragma once
/// The `parameters:`, `deviations:` and `fit:` sections of a stack file.
#include <map>
#include <string>
#include <vector>

#include "core/document.hpp"
#include "moecast/stack.hpp"

namespace moecast {

std::map<std::string, ParameterValue> read_stack_parameters(const Document& doc, const Node& node,
                                                            Diagnostics& problems);
/// `stack`: the scope of those that name none.
std::vector<Deviation> read_deviations(const Document& doc, const Node& node,
                                       const std::string& stack, Diagnostics& problems);
StepFit read_step_fit(const Document& doc, const Node& node, Diagnostics& problems);

}  // namespace moecast
