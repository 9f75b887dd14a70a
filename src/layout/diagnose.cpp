#include "layout/diagnose.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "layout/rules.hpp"

namespace moecast {
namespace {

/// What goes wrong without a message of a rule.
struct Symptom {
  std::string_view words, cause, check, fix, source;
};
constexpr Symptom kSymptoms[] = {
    {"training hangs hang stuck timeout with overlap_moe_expert_parallel_comm PyTorch < 2.6",
     "EP overlap hangs with PyTorch older than 2.6.0", "look at the PyTorch version",
     "upgrade PyTorch to 2.6.0 or later", "perf-expert-parallel-overlap: failure diagnosis"},
    {"no speedup performance gain improvement from flex dispatcher alltoall still used backend "
     "ignored",
     "apply_flex_dispatcher_backend was not called: a backend alone does not select flex",
     "look for moe_token_dispatcher_type in the logged configuration",
     "call apply_flex_dispatcher_backend(...)", "perf-expert-parallel-overlap: failure diagnosis"},
    {"DeepEP HybridEP silently skipped warning unsupported GPU falling back to alltoall",
     "the GPU does not carry the backend: the helper warns and falls back to alltoall",
     "look for the warning", "run on Ampere, Hopper or Blackwell, or keep alltoall",
     "perf-expert-parallel-overlap: failure diagnosis"},
    {"CUDA out of memory OutOfMemoryError torch.cuda tried to allocate GiB warm-up",
     "the memory wall", "moecast estimate RUN --memory shows which rank and which part",
     "selective recompute first, then FP8, a better pipeline split, and offload last",
     "moe-optimization-workflow: phase 3, the memory wall"},
    {"large all-to-all alltoall collective blocks in nsight nccl exposed communication bound",
     "the communication wall", "measure the union of communication not covered by compute",
     "DeepEP or HybridEP, EP overlap, overlap of DP and TP traffic, a better pipeline split",
     "moe-optimization-workflow: phase 3, the communication wall"},
    {"GPU idle gaps kernel launch bound Python overhead host CPU bound", "the host wall",
     "look at the gaps between kernels of a profiled step",
     "CUDA graphs, --manual-gc, a larger micro batch, CPU affinity",
     "moe-optimization-workflow: phase 3, the host wall"},
    {"low SM utilization utilisation occupancy GEMM compute bound", "the compute wall",
     "first settle communication and host gaps",
     "grouped GEMM, more fusions, FP8, the dispatcher's kernel settings",
     "moe-optimization-workflow: phase 3, the compute wall"},
    {"loss is nan inf NaN found in local grad norm skipped iterations",
     "numbers left the finite range: no layout rule", "compare with a BF16 run, eager, alltoall",
     "start from BF16 with the router in fp32 and change one variable at a time",
     "moe-optimization-workflow: phase 4"},
    {"unable to allocate ncclUnhandledCudaError device or resource busy nccl error init",
     "a communicator could not be made: no layout rule", "rerun with NCCL_DEBUG=INFO",
     "leave memory for NCCL's buffers, check the fabric", "moecast"},
};

/// Words that say nothing about the cause.
const std::set<std::string>& common_words() {
  static const std::set<std::string> words{"assert",
                                           "assertionerror",
                                           "error",
                                           "valueerror",
                                           "runtimeerror",
                                           "traceback",
                                           "most",
                                           "recent",
                                           "call",
                                           "last",
                                           "file",
                                           "line",
                                           "in",
                                           "the",
                                           "a",
                                           "an",
                                           "is",
                                           "are",
                                           "be",
                                           "to",
                                           "of",
                                           "and",
                                           "or",
                                           "with",
                                           "for",
                                           "not",
                                           "only",
                                           "must",
                                           "should",
                                           "when",
                                           "if",
                                           "on",
                                           "by",
                                           "you",
                                           "it",
                                           "this",
                                           "that",
                                           "than",
                                           "can",
                                           "raise",
                                           "self",
                                           "args",
                                           "config",
                                           "model",
                                           "true",
                                           "false",
                                           "none",
                                           "at",
                                           "from"};
  return words;
}

std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto flush = [&] {
    while (!word.empty() && word.back() == '_') word.pop_back();
    if (word.size() > 1 && common_words().count(word) == 0) words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0) {
      word += static_cast<char>(std::tolower(u));
    } else if ((c == '_' || c == '-') && !word.empty()) {
      word += '_';  // --flag-name is flag_name
    } else {
      flush();
    }
  }
  flush();
  return words;
}

struct DiagnosisEntry {
  const Rule* rule = nullptr;
  const Symptom* symptom = nullptr;
  std::set<std::string> words;    ///< everything that the entry says
  std::set<std::string> message;  ///< words of the logged message alone
};

/// A name of several parts also counts by its parts.
void add_words(std::set<std::string>& set, std::string_view text) {
  for (const std::string& word : words_in(text)) set.insert(word);
}

const std::vector<DiagnosisEntry>& diagnosis_entries() {
  static const std::vector<DiagnosisEntry> all = [] {
    std::vector<DiagnosisEntry> list;
    for (const Rule& rule : rule_table()) {
      DiagnosisEntry& e = list.emplace_back();
      e.rule = &rule;
      add_words(e.message, rule.log);
      e.words = e.message;
      add_words(e.words, rule.reads);
      add_words(e.words, rule.condition);
    }
    for (const Symptom& symptom : kSymptoms) {
      DiagnosisEntry& e = list.emplace_back();
      e.symptom = &symptom;
      add_words(e.message, symptom.words);
      e.words = e.message;
      add_words(e.words, symptom.cause);
    }
    return list;
  }();
  return all;
}

/// Rare words tell more: log of all entries over those with the word.
double word_weight(const std::string& word) {
  static const auto counts = [] {
    std::map<std::string, int> n;
    for (const DiagnosisEntry& e : diagnosis_entries())
      for (const std::string& w : e.words) ++n[w];
    return n;
  }();
  const auto found = counts.find(word);
  return found == counts.end()
             ? 0
             : std::log(1 + static_cast<double>(diagnosis_entries().size()) / found->second);
}

double weight_of(const std::set<std::string>& words, const std::set<std::string>& among) {
  double total = 0;
  for (const std::string& word : words)
    if (among.count(word) != 0) total += word_weight(word);
  return total;
}

Diagnosis diagnosis_of(const DiagnosisEntry& e, double match) {
  if (e.symptom != nullptr) {
    return {"",
            std::string(e.symptom->cause),
            std::string(e.symptom->check),
            std::string(e.symptom->fix),
            std::string(e.symptom->source),
            match};
  }
  const Rule& r = *e.rule;
  std::string look;
  for (const std::string& knob : knobs_of(r)) look += (look.empty() ? "look at " : ", ") + knob;
  std::string source(r.source);
  if (!r.document.empty()) source += fmt::format("; \"{}\"", r.document);
  return {std::string(r.id), std::string(r.condition), look, std::string(r.fix), source, match};
}

}  // namespace

std::vector<Diagnosis> diagnose(std::string_view text) {
  constexpr std::size_t kLongest = 20'000, kMost = 3;
  // the end of a traceback holds the message
  if (text.size() > kLongest) text.remove_prefix(text.size() - kLongest);
  std::set<std::string> asked;
  add_words(asked, text);
  std::vector<std::pair<double, const DiagnosisEntry*>> ranked;
  for (const DiagnosisEntry& e : diagnosis_entries()) {
    const double said = weight_of(asked, e.words), total = weight_of(asked, asked);
    if (said <= 0 || total <= 0) continue;
    // how much of the text the entry explains, and how much of its own message the text holds
    const double own = weight_of(e.message, e.message);
    const double echoed = own > 0 ? weight_of(e.message, asked) / own : 0;
    ranked.emplace_back(0.6 * said / total + 0.4 * echoed, &e);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Diagnosis> found;
  for (const auto& [score, entry] : ranked) {
    if (found.size() == kMost || score < 0.25 || score < 0.6 * ranked.front().first) break;
    found.push_back(diagnosis_of(*entry, score));
  }
  return found;
}

}  // namespace moecast
