#pragma once
/// The search: every legal combination of the axes, fit -> scale, ranked. One evaluator for search
/// and estimate.
#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "moecast/estimate.hpp"
#include "moecast/result.hpp"

namespace moecast {

inline constexpr int kMaxParts = 100000;
/// One of `of` equal parts of a space, counted from 1; of = 0: the whole space.
struct SearchPart {
  int index = 1, of = 0;

  [[nodiscard]] bool whole() const { return of == 0; }
  /// Meshes are scattered over the parts (multiplicative hash): neighbours in the space cost alike,
  /// and with every n-th one part could hold all the expensive values of an axis.
  [[nodiscard]] bool has(std::uint64_t mesh) const {
    return whole() || ((mesh * 0x9E3779B97F4A7C15u) >> 32) % static_cast<unsigned>(of) ==
                          static_cast<unsigned>(index - 1);
  }
  bool operator==(const SearchPart&) const = default;
};

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
    tokens_per_dollar,
    robustness  ///< step time with the routing of worst_imbalance: the worst of 1 to that
  } objective = Objective::step_time;
  double worst_imbalance = 1.3;  ///< rows of the fullest EP rank over the mean; it must fit as well
  int max_ep_domains = 0;        ///< NVLink domains that an expert group may span; 0 = any
  bool exhaustive = false;
  double min_headroom_gib = 0.0;
  int threads = 0;  ///< 0 = all cores; the answer does not depend on it
  std::function<void(double fraction)>
      progress;                ///< called from one thread at a time; may be empty
  std::optional<Run> explain;  ///< say where this layout stands; model and cluster as in base
  SearchPart part;
  const std::atomic<bool>* stop = nullptr;  ///< when it turns true, the best so far is the answer
  [[nodiscard]] bool stopped() const { return stop != nullptr && stop->load(); }
};

/// Where a layout stands among all others, in this order. The best of every family goes before the
/// rest.
struct RankKey {
  double value = 0;                       ///< what the objective ranks by; smaller is better
  double step = 0;                        ///< seconds
  std::array<std::uint32_t, 6> place{};   ///< mesh and inner indices: unique in the space
  std::array<std::uint32_t, 3> family{};  ///< of one mesh, and so of one part
  double reserved = 0;                    ///< bytes
  auto operator<=>(const RankKey&) const = default;
};
/// The fit order of a layout; smaller comes first.
using FitOrder = std::array<std::int64_t, 12>;

struct RankedLayout {
  Run run;
  Seconds step_time;
  double tflops_per_gpu = 0;
  Bytes peak, peak_reserved;
  Wall wall = Wall::compute;
  std::string why;
  Seconds worst_step_time;  ///< with worst_imbalance; 0 unless the objective is robustness
  RankKey key;              ///< with the automatic split of the layers
  double value = 0;         ///< what the objective ranks by, with the split of `run`
  /// Half of the 90 % interval of log(time / first's time); not set on the first row, and where the
  /// rank is no time.
  std::optional<double> slower_half_width;
  [[nodiscard]] bool told_apart_from(const RankedLayout& first) const;
};

/// Where a layout stands that somebody asked about.
struct Explanation {
  Run run;
  std::string verdict;  ///< "ranked", "slower", "more than needed", "memory", "not in the space",
                        ///< "rule", "no plan"
  std::string message;
  std::vector<std::string> rules;  ///< that refuse it
  Bytes over;                      ///< reserved over what it may reserve; negative: left
  int rank = 0;                    ///< in the list; 0: not there
  Seconds step_time;
  double slower_pct = 0;                              ///< than the first
  std::vector<std::pair<std::string, double>> where;  ///< seconds more than the first, by part
};

struct SearchResult {
  std::optional<Explanation> explained;
  std::uint64_t candidates = 0, legal = 0, evaluated = 0, fit = 0, simulated = 0, pruned = 0;
  double elapsed_s = 0;
  bool complete = true;  ///< false: stopped; then the counters say what was done
  double scanned = 1;    ///< share of the space (of the part) that the first pass saw
  bool any_fit = false;
  RankedLayout first_fit;  ///< by the fit order
  FitOrder first_fit_order{};
  std::vector<RankedLayout> ranked;
  std::vector<RankedLayout> pareto;  ///< step time against memory, of what ranks no worse than the
                                     ///< K-th best; a part keeps every row, a whole answer ten
  std::map<std::string, std::uint64_t> rejected;  ///< rule id or reason -> candidates
  struct Nearest {
    Run run;
    Bytes over;
    std::string change;
    std::uint32_t mesh = 0;  ///< the earlier one wins a tie
  } nearest;                 ///< when nothing fits
};

Result<SearchResult> search(const SearchRequest& request);

/// The answer of one part of a search, with the question that it answers.
struct SearchShard {
  std::string file;  ///< for messages
  SearchPart part;
  int top = 10;
  nlohmann::ordered_json asked;  ///< the same in all parts
  SearchResult result;
};
/// The answer of the whole search from all of its parts, in any order: equal to it but for the
/// time, `simulated` and `pruned`, which are sums of what the parts did. Parts that are missing,
/// doubled, stopped or of another question are problems.
Result<SearchResult> merge(const std::vector<SearchShard>& shards);

}  // namespace moecast
