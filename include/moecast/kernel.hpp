#pragma once
/// One kernel by itself: how it is named on the command line, in rows of a CSV and in the samples
/// of a calibration, and what it costs.
#include <map>
#include <string>
#include <variant>

namespace moecast {

/// Keys of a kernel as `moecast kernel` names them: numbers, and words such as precision or pass. A
/// flag is the number 0 or 1.
using KernelKeys = std::map<std::string, std::variant<double, std::string>>;

}  // namespace moecast
