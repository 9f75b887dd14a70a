// Joins the parts of a search. Exact, because a family lies in one part: each part lists its K best
// and its whole front, so the union holds everything that the whole answer can have.
#include <fmt/format.h>

#include <map>
#include <thread>

#include "moecast/search.hpp"
#include "search/finish.hpp"
#include "search/rank_order.hpp"

namespace moecast {
namespace {

Diagnostic refused(const SearchShard& shard, std::string message, std::string hint) {
  return {shard.file, 0, 0, "shard", std::move(message), std::move(hint)};
}

/// Where two questions differ first, as a JSON pointer with both values; empty when they don't.
std::string first_difference(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b) {
  const auto left = a.flatten(), right = b.flatten();
  const auto text = [](const auto& tree, const std::string& path) {
    return tree.contains(path) ? tree[path].dump() : std::string("not given");
  };
  for (const auto& tree : {left, right}) {
    for (const auto& [path, value] : tree.items()) {
      if (text(left, path) != text(right, path))
        return fmt::format("{} is {} instead of {}", path, text(right, path), text(left, path));
    }
  }
  return "";
}

/// Everything that keeps the parts from being one answer.
Diagnostics check_parts(const std::vector<SearchShard>& shards) {
  if (shards.empty())
    return {{"--merge", 0, 0, "", "needs the files of all parts", "see moecast search --help"}};
  Diagnostics problems;
  const SearchShard& first = shards.front();
  std::map<int, const SearchShard*> seen;
  for (const SearchShard& shard : shards) {
    const std::string other = first_difference(first.asked, shard.asked);
    if (!other.empty()) {
      problems.push_back(refused(shard,
                                 "answers another question than " + first.file + ": " + other,
                                 "merge the parts of one search"));
    }
    if (shard.part.of != first.part.of) {
      problems.push_back(refused(
          shard,
          fmt::format("is one of {} parts, {} one of {}", shard.part.of, first.file, first.part.of),
          "merge parts of the same number"));
    }
    if (!shard.result.complete)
      problems.push_back(refused(shard, "was interrupted before it was complete", "run it again"));
    const auto [at, added] = seen.emplace(shard.part.index, &shard);
    if (!added) {
      problems.push_back(refused(
          shard,
          fmt::format("part {} is given twice, first in {}", shard.part.index, at->second->file),
          "name every file once"));
    }
  }
  std::vector<int> missing;
  for (int index = 1; index <= first.part.of; ++index)
    if (!seen.contains(index)) missing.push_back(index);
  if (!missing.empty()) {
    problems.push_back(
        {"--merge", 0, 0, "",
         fmt::format("{} of {} parts missing: {}{}", missing.size(), first.part.of,
                     fmt::join(first_of(missing, 10), ", "), missing.size() > 10 ? ", ..." : ""),
         "run them with --shard i/n and name their files"});
  }
  return problems;
}

void add_counts(SearchResult& all, const SearchResult& part) {
  all.candidates += part.candidates;
  all.legal += part.legal;
  all.evaluated += part.evaluated;
  all.fit += part.fit;
  all.simulated += part.simulated;
  all.pruned += part.pruned;
  all.elapsed_s += part.elapsed_s;
  for (const auto& [reason, count] : part.rejected) all.rejected[reason] += count;
}

void take_first_fit(SearchResult& all, const SearchResult& part) {
  if (!part.any_fit || (all.any_fit && all.first_fit_order <= part.first_fit_order)) return;
  all.any_fit = true;
  all.first_fit = part.first_fit;
  all.first_fit_order = part.first_fit_order;
}

void take_nearest(SearchResult& all, const SearchResult& part) {
  const auto key = [](const SearchResult::Nearest& n) { return std::pair(n.over.value, n.mesh); };
  if (part.nearest.run.gpus == 0) return;
  if (all.nearest.run.gpus == 0 || key(part.nearest) < key(all.nearest)) all.nearest = part.nearest;
}

}  // namespace

Result<SearchResult> merge(const std::vector<SearchShard>& shards) {
  if (Diagnostics problems = check_parts(shards); !problems.empty()) return problems;
  SearchResult all;
  std::vector<RankedLayout> ranked, front;
  for (const SearchShard& shard : shards) {
    const SearchResult& part = shard.result;
    add_counts(all, part);
    take_first_fit(all, part);
    take_nearest(all, part);
    ranked.insert(ranked.end(), part.ranked.begin(), part.ranked.end());
    front.insert(front.end(), part.pareto.begin(), part.pareto.end());
  }
  if (all.any_fit) all.nearest = {};
  const int asked = shards.front().top;
  const auto top = static_cast<std::size_t>(compared_rows(asked));
  ranked = in_rank_order(std::move(ranked));
  all.pareto = pareto_front(std::move(front), front_limit(ranked, top), kFrontRows);
  all.ranked = first_of(ranked, top);
  finish(all, asked, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  return all;
}

}  // namespace moecast
