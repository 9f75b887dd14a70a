#include "cli/search_request.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "core/document.hpp"
#include "layout/enum_names.hpp"
#include "layout/knobs.hpp"
#include "layout/run_file.hpp"
#include "search/request.hpp"

namespace moecast::cli {
namespace {

Diagnostic problem(const std::string& option, const std::string& key, std::string message,
                   std::string hint = "") {
  return {option, 0, 0, key, std::move(message), std::move(hint)};
}

void append(Diagnostics& all, Diagnostics more, const std::string& option) {
  for (Diagnostic& d : more) {
    d.file = option;
    all.push_back(std::move(d));
  }
}

/// "key=text" whose key the knob table has, or the problem.
std::optional<std::pair<std::string, std::string>> assignment(const std::string& option,
                                                              const std::string& text,
                                                              Diagnostics& problems) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    problems.push_back(problem(option, text, "is not key=value", "write it as tp=4"));
    return std::nullopt;
  }
  const std::string name = text.substr(0, equals);
  if (knob_of_key(name) == nullptr) {
    const std::string nearest = suggestion(name, knob_names());
    problems.push_back(
        problem(option, name, "unknown key", nearest.empty() ? "see moecast list knobs" : nearest));
    return std::nullopt;
  }
  return std::pair(name, text.substr(equals + 1));
}

void set_precisions(const SearchWords& words, SearchRequest& request, Diagnostics& problems) {
  if (words.precisions.empty()) return;
  request.precisions.clear();
  for (const std::string& word : words.precisions) {
    const auto precision = enum_from_text<Precision>(word);
    if (!precision) {
      problems.push_back(problem("--precision", word, "unknown precision",
                                 suggestion(word, enum_choices<Precision>())));
    } else if (std::find(request.precisions.begin(), request.precisions.end(), *precision) ==
               request.precisions.end()) {
      request.precisions.push_back(*precision);
    }
  }
}

void set_objective(const SearchWords& words, SearchRequest& request, Diagnostics& problems) {
  using Objective = SearchRequest::Objective;
  static const std::map<std::string, Objective> kObjectives{
      {"step_time", Objective::step_time},
      {"memory", Objective::memory},
      {"tokens_per_dollar", Objective::tokens_per_dollar},
      {"robustness", Objective::robustness}};
  const auto found = kObjectives.find(words.objective);
  if (found != kObjectives.end()) {
    request.objective = found->second;
    return;
  }
  std::vector<std::string> names;
  for (const auto& entry : kObjectives) names.push_back(entry.first);
  problems.push_back(problem("--objective", words.objective, "unknown objective",
                             suggestion(words.objective, names)));
}

void set_part(const std::string& text, SearchRequest& request, Diagnostics& problems) {
  if (text.empty()) return;
  SearchPart part;
  int end = 0;
  const bool read = std::sscanf(text.c_str(), "%6d/%6d%n", &part.index, &part.of, &end) == 2 &&
                    end == static_cast<int>(text.size());
  if (read && part.of >= 1 && part.of <= kMaxParts && part.index >= 1 && part.index <= part.of) {
    request.part = part;
  } else {
    problems.push_back(problem("--shard", text, "is no part of a search",
                               "write i/n with i from 1 to n, such as 3/16"));
  }
}

/// A layout of the same model on the same cluster.
void set_explain(const std::string& text, SearchRequest& request, Diagnostics& problems) {
  if (text.empty()) return;
  if (text.find('=') == std::string::npos) {
    const Result<Run> run = read_run(text);
    if (!run) {
      problems.insert(problems.end(), run.problems().begin(), run.problems().end());
      return;
    }
    const Run &asked = run.value(), &base = request.base;
    if (asked.model != base.model || asked.system != base.system || asked.gpus != base.gpus ||
        asked.seq_length != base.seq_length || asked.global_batch_size != base.global_batch_size) {
      problems.push_back(
          problem("--explain", text, "is another question than the search's",
                  "it needs the same model, system, GPUs, sequence and global batch"));
    }
    request.explain = asked;
    return;
  }
  Run run = request.base;
  for (const std::string& value : split_values(text)) {
    const auto pair = assignment("--explain", value, problems);
    if (pair) append(problems, apply_set(run, pair->first + "=" + pair->second), "--explain");
  }
  request.explain = run;
}

void fix_knob(const std::string& option, const std::string& text, SearchRequest& request,
              Diagnostics& problems) {
  const auto pair = assignment(option, text, problems);
  if (!pair) return;
  const Diagnostics wrong = set_knob(request, pair->first, pair->second, option);
  problems.insert(problems.end(), wrong.begin(), wrong.end());
}

void vary_knob(const std::string& text, SearchRequest& request, Diagnostics& problems) {
  const auto pair = assignment("--vary", text, problems);
  if (!pair) return;
  const std::vector<std::string> values = split_values(pair->second);
  for (const std::string& value : values) {
    Run scratch = request.base;
    append(problems, apply_set(scratch, pair->first + "=" + value), "--vary");
  }
  request.vary.emplace_back(std::string(knob_of_key(pair->first)->key), values);
}

void require_base(const Run& base, const std::vector<std::string>& later, Diagnostics& problems) {
  const auto need = [&](bool given, const char* key, const char* option) {
    const auto is_key = [&](const std::string& name) { return find_knob(name) == find_knob(key); };
    if (!given && std::none_of(later.begin(), later.end(), is_key)) {
      problems.push_back(
          problem("command line", option, "is required", "see moecast search --help"));
    }
  };
  need(!base.model.empty(), "model", "--model");
  need(!base.system.empty(), "cluster.system", "--system");
  need(base.gpus > 0, "cluster.gpus", "--gpus");
  need(base.seq_length > 0, "train.seq_length", "--seq-length");
  need(base.global_batch_size > 0, "train.global_batch_size", "--global-batch-size");
}

/// Searches again what the layout of a run says; its precision stays.
void take_start(const Run& start, SearchRequest& request) {
  request.base = start;
  request.base.layout.pipeline_split = PipelineSplit::automatic;
  request.base.pipeline_model_parallel_layout.clear();
  request.precisions = {start.layout.precision};
}

}  // namespace

std::vector<std::string> split_values(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (c == ',' && depth == 0) {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  return values;
}

Result<SearchRequest> make_search_request(const SearchWords& words, const std::optional<Run>& start,
                                          const std::vector<std::string>& later) {
  SearchRequest request;
  if (start) take_start(*start, request);
  Diagnostics problems;
  for (const std::string& text : words.sets) fix_knob("command line", text, request, problems);
  for (const std::string& text : words.fix) fix_knob("--fix", text, request, problems);
  if (problems.empty()) require_base(request.base, later, problems);
  for (const std::string& text : words.vary) vary_knob(text, request, problems);
  set_precisions(words, request, problems);
  set_objective(words, request, problems);
  set_explain(words.explain, request, problems);
  set_part(words.shard, request, problems);
  if (request.explain && !request.part.whole()) {
    problems.push_back(problem("--explain", words.explain, "is not taken with --shard",
                               "a part does not know the first of the whole: ask without --shard"));
  }
  request.top = words.top;
  request.threads = words.threads;
  request.exhaustive = words.exhaustive;
  request.min_headroom_gib = words.min_headroom_gib;
  request.worst_imbalance = words.worst_imbalance;
  request.max_ep_domains = words.max_ep_domains;
  if (!problems.empty()) return problems;
  return request;
}

}  // namespace moecast::cli
