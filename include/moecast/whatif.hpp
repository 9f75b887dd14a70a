#pragma once
/// Sweeps for planning: every combination of lists over any run key, the layout searched again at
/// each point, and what a budget of tokens takes there.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "moecast/search.hpp"

namespace moecast {

struct WhatIfAxis {
  std::string key;  ///< any run key; system.NAME stands for cluster.system_overrides.NAME
  std::vector<std::string> values;
};

struct WhatIfRequest {
  SearchRequest base;            ///< what the axes do not say
  std::vector<WhatIfAxis> axes;  ///< points are their product, the last axis changes fastest
  std::optional<Run> start;      ///< its layout competes with the searched ones at every point
  bool keep_layout = false;  ///< only the layout of `start`: more GPUs are more data parallelism
  double tokens = 0;         ///< budget
  std::map<std::string, double> prices;  ///< of a GPU-hour, by system; "" = of any other
  std::optional<double> days;            ///< wanted: the fewest GPUs that keep it
};

struct WhatIfPoint {
  std::vector<std::string> values;  ///< one per axis
  Run run;                          ///< with the best layout; as asked where nothing runs
  std::string reason;               ///< why nothing runs here; empty when something does
  Estimate estimate;                ///< of `run`
  bool started = false;             ///< the layout of `start` is the best one
  double tokens_per_s = 0, steps = 0;
  double days = 0, days_p05 = 0, days_p95 = 0, gpu_hours = 0;
  std::optional<double> cost;
  double speedup = 1;     ///< tokens/s against the first point that runs
  double efficiency = 1;  ///< tokens/s per GPU against it

  [[nodiscard]] bool runs() const { return reason.empty(); }
};

struct WhatIfResult {
  std::vector<WhatIfPoint> points;       ///< in order; all of them unless stopped
  std::size_t asked = 0;                 ///< points of the product
  std::optional<std::size_t> reference;  ///< the first point that runs
  std::optional<std::size_t> answer;     ///< with `days`: the fewest GPUs that keep it

  [[nodiscard]] bool complete() const { return points.size() == asked; }
};

/// Problems of the axes and the inputs, all at once; what one point cannot run is its `reason`.
Result<WhatIfResult> whatif(const WhatIfRequest& request);

}  // namespace moecast
