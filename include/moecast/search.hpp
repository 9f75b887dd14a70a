#pragma once
/// The search: every legal combination of the axes, fit -> scale, ranked. One evaluator for search
/// and estimate.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "moecast/estimate.hpp"
#include "moecast/result.hpp"

namespace moecast {

struct SearchRequest {
  Run base;  ///< model, cluster, train; values that are not searched
  std::vector<Precision> precisions{Precision::bf16};
  std::vector<std::pair<std::string, std::vector<std::string>>>
      vary;  ///< extra or replaced axes: knob key -> values
  std::vector<std::pair<std::string, std::string>>
      fix;  ///< knob key = value: the axis has one value
  bool vary_micro_batch_size = true;
  int top = 10;
  enum class Objective : std::uint8_t {
    step_time,
    memory,
    tokens_per_dollar
  } objective = Objective::step_time;
  bool exhaustive = false;
  double min_headroom_gib = 0.0;
  int threads = 0;  ///< 0 = all cores; the answer does not depend on it
  std::function<void(double fraction)>
      progress;  ///< called from one thread at a time; may be empty
};

struct RankedLayout {
  Run run;
  Seconds step_time;
  double tflops_per_gpu = 0;
  Bytes peak, peak_reserved;
  Wall wall = Wall::compute;
  std::string why;
};

struct SearchResult {
  std::uint64_t candidates = 0, legal = 0, evaluated = 0, fit = 0, simulated = 0, pruned = 0;
  double elapsed_s = 0;
  bool any_fit = false;
  RankedLayout first_fit;  ///< by the fit order
  std::vector<RankedLayout> ranked;
  std::vector<RankedLayout> pareto;               ///< step time against memory
  std::map<std::string, std::uint64_t> rejected;  ///< rule id or reason -> candidates
  struct Nearest {
    Run run;
    Bytes over;
    std::string change;
  } nearest;  ///< when nothing fits
};

Result<SearchResult> search(const SearchRequest& request);

}  // namespace moecast
