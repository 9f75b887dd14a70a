#include <algorithm>
#include <cctype>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/document.hpp"

namespace moecast {
namespace {

/// BF16, bf-16 and bf_16 differ in spelling habits only.
std::string folded(std::string_view word) {
  std::string out(word);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  return out;
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost 1.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words{""};
  for (const char c : name) {
    if (c == '_' || c == '.') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// Word by word: a misspelt word costs its edits, a word left out or added costs 2, another word
/// costs its length. So tensor_paralel_size is nearer to tensor_model_parallel_size than to
/// context_parallel_size.
std::size_t word_distance(const std::string& a, const std::string& b) {
  const std::vector<std::string> x = words_of(a), y = words_of(b);
  std::vector<std::size_t> last(y.size() + 1), row(y.size() + 1);
  for (std::size_t j = 0; j <= y.size(); ++j) last[j] = 2 * j;
  for (std::size_t i = 1; i <= x.size(); ++i) {
    row[0] = 2 * i;
    for (std::size_t j = 1; j <= y.size(); ++j) {
      const std::size_t longer = std::max(x[i - 1].size(), y[j - 1].size());
      const std::size_t edits = edit_distance(x[i - 1], y[j - 1]);
      const std::size_t other = edits <= std::max<std::size_t>(1, longer / 3) ? edits : longer + 2;
      row[j] = std::min({last[j] + 2, row[j - 1] + 2, last[j - 1] + other});
    }
    std::swap(last, row);
  }
  return last[y.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string wanted = folded(word);
  std::size_t least = std::numeric_limits<std::size_t>::max();
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t shorter = std::min(word.size(), candidate.size());
    const std::size_t limit = std::max<std::size_t>(2, longer / 3);
    if (longer - shorter > limit) continue;
    const std::string known = folded(candidate);
    std::size_t distance = edit_distance(wanted, known);
    if (wanted.find('_') != std::string::npos)
      distance = std::min(distance, word_distance(wanted, known));
    // A distance as long as the word means that nothing is alike (tp and xy).
    if (distance > limit || distance >= longer || distance >= least) continue;
    nearest = candidate;
    least = distance;
  }
  return nearest;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kShortList = 10;
  const std::string nearest = nearest_name(word, candidates);
  if (!nearest.empty()) return fmt::format("did you mean '{}'?", nearest);
  if (candidates.empty() || candidates.size() > kShortList) return "";
  return fmt::format("one of {}", fmt::join(candidates, ", "));
}

}  // namespace moecast
