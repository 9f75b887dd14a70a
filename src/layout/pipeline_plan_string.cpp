#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "layout/pipeline_plan.hpp"
#include "layout/rules.hpp"

namespace moecast {
namespace {

constexpr const char* kKey = "layout.pipeline_model_parallel_layout";
constexpr std::size_t kMaxExpanded = 1'000'000;

bool digit(char c) { return c >= '0' && c <= '9'; }

/// Reads "*n" at `at`; returns the position behind it, or 0 when there is none. n saturates.
std::size_t read_times(std::string_view s, std::size_t at, std::size_t& n) {
  if (at + 1 >= s.size() || s[at] != '*' || !digit(s[at + 1])) return 0;
  n = 0;
  std::size_t i = at + 1;
  for (; i < s.size() && digit(s[i]); ++i) {
    n = std::min(n * 10 + static_cast<std::size_t>(s[i] - '0'), kMaxExpanded + 1);
  }
  return i;
}

bool append_times(std::string& out, std::string_view piece, std::size_t n) {
  if (piece.size() * n + out.size() > kMaxExpanded) return false;
  for (std::size_t i = 0; i < n; ++i) out += piece;
  return true;
}

/// Megatron's first pass, re.sub(r'\(([^)]+)\)\*(\d+)'): leftmost "(text)*n" with no ')' in the
/// text, one pass, no nesting.
std::optional<std::string> expand_groups(std::string_view s) {
  std::string out;
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t close = s[i] == '(' ? s.find(')', i) : std::string_view::npos;
    std::size_t n = 0;
    const std::size_t next =
        close != std::string_view::npos && close > i + 1 ? read_times(s, close + 1, n) : 0;
    if (next == 0) n = 1;
    const auto piece = next == 0 ? s.substr(i, 1) : s.substr(i + 1, close - i - 1);
    if (!append_times(out, piece, n)) return std::nullopt;
    i = next == 0 ? i + 1 : next;
  }
  return out;
}

/// Megatron's second pass, re.sub(r'(.)\*(\d+)').
std::optional<std::string> expand_letters(std::string_view s) {
  std::string out;
  for (std::size_t i = 0; i < s.size();) {
    std::size_t n = 1;
    const std::size_t next = read_times(s, i + 1, n);
    if (next == 0) n = 1;
    if (!append_times(out, s.substr(i, 1), n)) return std::nullopt;
    i = next == 0 ? i + 1 : next;
  }
  return out;
}

std::optional<std::string> expand(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  if (auto groups = expand_groups(text)) return expand_letters(*groups);
  return std::nullopt;
}

std::vector<std::string_view> split_stages(std::string_view s) {
  std::vector<std::string_view> stages;
  for (std::size_t begin = 0;;) {
    const std::size_t bar = s.find('|', begin);
    stages.push_back(s.substr(begin, bar == std::string_view::npos ? bar : bar - begin));
    if (bar == std::string_view::npos) return stages;
    begin = bar + 1;
  }
}

int count(std::string_view s, char c) {
  return static_cast<int>(std::count(s.begin(), s.end(), c));
}

/// Checks of validate_layer_layout, all of them.
class Checker {
 public:
  Checker(const ModelSpec& model, std::string_view expanded)
      : model_(model), expanded_(expanded), stages_(split_stages(expanded)) {}

  Diagnostics run(int pp, int vpp_stated) {
    letters();
    stage_count(pp, vpp_stated);
    ends();
    layers();
    mtp(pp);
    return std::move(problems_);
  }

 private:
  void add(std::string message, std::string hint = "") {
    Diagnostic d;
    d.key = kKey;
    d.message = std::move(message);
    d.hint = std::move(hint);
    problems_.push_back(std::move(d));
  }
  void letters() {
    std::string seen;
    for (char c : expanded_) {
      if (std::string_view("EtmL|").find(c) != std::string_view::npos) continue;
      if (seen.find(c) == std::string::npos) {
        seen += c;
        add(fmt::format("'{}' is not a layer", c),
            "use E (embedding), t (decoder), m (MTP), L (loss), '|' between stages, x*n and "
            "(..)*n without nesting");
      }
    }
  }
  void stage_count(int pp, int vpp_stated) {
    const int n = static_cast<int>(stages_.size());
    if (n % pp != 0) {
      add(fmt::format("{} stages are not a multiple of PP {}", n, pp),
          "the string needs PP * VPP stages, that is one '|' less");
    } else if (vpp_stated > 0 && n / pp != vpp_stated) {
      add(fmt::format("{} stages over PP {} mean VPP {}, but VPP {} is stated", n, pp, n / pp,
                      vpp_stated),
          fmt::format("set VPP {} or write {} stages", n / pp, static_cast<long>(pp) * vpp_stated));
    }
  }
  void ends() {
    std::string flat(expanded_);
    flat.erase(std::remove(flat.begin(), flat.end(), '|'), flat.end());
    if (flat.empty() || flat.front() != 'E') add("the first layer must be E", "begin with E");
    if (flat.empty() || flat.back() != 'L') add("the last layer must be L", "end with L");
    for (const auto& [letter, name] : {std::pair{'E', "embedding"}, std::pair{'L', "loss"}}) {
      const int found = count(flat, letter);
      if (found != 1) add(fmt::format("{} ({}) stands {} times, wanted once", letter, name, found));
    }
    const std::size_t first_m = flat.find('m');
    if (first_m != std::string::npos && flat.find('t', first_m) != std::string::npos) {
      add("decoder layers (t) stand behind MTP layers (m)", "put every t before the first m");
    }
  }
  void layers() {
    const int found = count(expanded_, 't');
    const int wanted = static_cast<int>(model_.layers.size());
    if (found != wanted) {
      add(fmt::format("{} decoder layers (t) found, the model has {}", found, wanted),
          fmt::format("{} {} t", found < wanted ? "add" : "remove", std::abs(wanted - found)));
    }
    const int found_mtp = count(expanded_, 'm');
    if (found_mtp != model_.mtp_num_layers) {
      add(fmt::format("{} MTP layers (m) found, the model has {}", found_mtp,
                      model_.mtp_num_layers),
          "one m per MTP depth");
    }
  }
  /// m only in the last chunk of its rank, all in one stage. (The last chunk of rank 0 passes, as
  /// in Megatron.)
  void mtp(int pp) {
    const std::size_t ranks = static_cast<std::size_t>(pp);
    int holders = 0;
    bool early_chunk = false;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (count(stages_[i], 'm') == 0) continue;
      ++holders;
      early_chunk |= i + ranks < stages_.size();
    }
    if (early_chunk) add("MTP layers (m) must be in the last virtual stage of their rank");
    if (holders > 1) add("all MTP layers (m) must be in the same stage");
  }

  const ModelSpec& model_;
  std::string_view expanded_;
  std::vector<std::string_view> stages_;
  Diagnostics problems_;
};

std::string fold_letter(char letter, std::size_t n) {
  return n <= 2 ? std::string(n, letter) : fmt::format("{}*{}", letter, n);
}

std::string stage_text(const Stage& stage, int mtp_num_layers) {
  std::string text = stage.embedding ? "E" : "";
  text += fold_letter('t', stage.layers.size());
  if (stage.mtp) text += fold_letter('m', static_cast<std::size_t>(std::max(1, mtp_num_layers)));
  return stage.loss ? text + "L" : text;
}

}  // namespace

LayoutScan scan_layout(const std::string& text) {
  LayoutScan scan;
  scan.given = !text.empty();
  const auto expanded = expand(text);
  if (!scan.given || !expanded) return scan;
  scan.expandable = true;
  scan.known_letters = expanded->find_first_not_of("EtmL|") == std::string::npos;
  std::string flat(*expanded);
  flat.erase(std::remove(flat.begin(), flat.end(), '|'), flat.end());
  scan.begins_with_embedding = !flat.empty() && flat.front() == 'E';
  scan.ends_with_loss = !flat.empty() && flat.back() == 'L';
  const std::size_t first_m = flat.find('m');
  scan.decoder_behind_mtp =
      first_m != std::string::npos && flat.find('t', first_m) != std::string::npos;
  scan.embeddings = count(flat, 'E');
  scan.losses = count(flat, 'L');
  scan.decoders = count(flat, 't');
  scan.mtp = count(flat, 'm');
  for (std::string_view stage : split_stages(*expanded)) {
    if (count(stage, 'm') > 0) {
      if (scan.first_mtp_stage < 0) scan.first_mtp_stage = scan.stages;
      scan.last_mtp_stage = scan.stages;
    }
    ++scan.stages;
  }
  return scan;
}

int count_layout_stages(const std::string& text) {
  const auto expanded = expand(text);
  return expanded ? count(*expanded, '|') + 1 : 0;
}

Result<PipelinePlan> parse_pipeline_layout(const std::string& text, const ModelSpec& model, int pp,
                                           int vpp_stated) {
  Diagnostic unreadable;
  unreadable.key = kKey;
  if (pp < 1) {
    unreadable.message = fmt::format("PP {} must be at least 1", pp);
    return unreadable;
  }
  const auto expanded = expand(text);
  if (!expanded) {
    unreadable.message = fmt::format("expands to more than {} letters", kMaxExpanded);
    return unreadable;
  }
  Diagnostics problems = Checker(model, *expanded).run(pp, vpp_stated);
  if (!problems.empty()) return problems;

  PipelinePlan plan;
  int layer = 0;
  for (std::string_view letters : split_stages(*expanded)) {
    Stage& stage = plan.stages.emplace_back();
    stage.embedding = count(letters, 'E') > 0;
    stage.mtp = count(letters, 'm') > 0;
    stage.loss = count(letters, 'L') > 0;
    for (int n = count(letters, 't'); n > 0; --n) stage.layers.push_back(layer++);
  }
  plan.pp = pp;
  plan.vpp = static_cast<int>(plan.stages.size()) / pp;
  plan.mtp_num_layers = model.mtp_num_layers;
  plan.layout_string = text;
  return plan;
}

std::string to_layout_string(const PipelinePlan& plan) {
  std::vector<std::string> texts;
  for (const Stage& stage : plan.stages) texts.push_back(stage_text(stage, plan.mtp_num_layers));
  std::string out;
  for (std::size_t i = 0; i + 1 < texts.size();) {
    std::size_t run = 1;
    while (i + run + 1 < texts.size() && texts[i + run] == texts[i]) ++run;
    std::string plain;
    for (std::size_t k = 0; k < run; ++k) plain += texts[i] + "|";
    const std::string folded = fmt::format("({}|)*{}", texts[i], run);
    out += folded.size() < plain.size() ? folded : plain;
    i += run;
  }
  return texts.empty() ? out : out + texts.back();
}

}  // namespace moecast
