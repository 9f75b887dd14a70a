#pragma once
/// THE table of a system's numbers: the reader of system files and the overrides of a run use it.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "moecast/cluster.hpp"

namespace moecast {

struct SystemFigure {
  enum class Kind : std::uint8_t { positive, not_negative, count };
  std::string_view section, key;  ///< fabric, nic_bandwidth_gb_per_s
  Kind kind = Kind::positive;
  double unit = 1;                      ///< what one of the key's unit is in ours
  double& (*value)(System&) = nullptr;  ///< nullptr for counts
  int& (*whole)(System&) = nullptr;     ///< of a count
};

const std::vector<SystemFigure>& system_figures();

/// Replaces figures, by key (section.key or {section: {key: ...}} too): a number in the key's unit,
/// or "x2" for twice the system's own. Problems name cluster.system_overrides.KEY.
Diagnostics override_figures(System& system, const nlohmann::ordered_json& overrides);

}  // namespace moecast
