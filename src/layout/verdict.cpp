#include "layout/verdict.hpp"

#include "layout/megatron_config.hpp"
#include "layout/rules.hpp"

namespace moecast {
namespace {

using Answer = nlohmann::ordered_json;

/// Versions that a line leaves open are those of the stack that the rules were checked with.
constexpr const char* kTransformerEngine = "2.12.0";
constexpr const char* kPyTorch = "2.11.0";
constexpr int kDeepestLine = 64;

Answer unreadable(Answer id, std::string problem) {
  return {{"id", std::move(id)},
          {"verdict", "unreadable"},
          {"rules", Answer::array()},
          {"later", Answer::array()},
          {"problems", {std::move(problem)}}};
}

/// nlohmann's parser recurses, so depth is counted first.
bool too_deep(const std::string& line) {
  int depth = 0;
  for (const char c : line) {
    if ((c == '[' || c == '{') && ++depth > kDeepestLine) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

MegatronConfig read_knobs(const nlohmann::json& knobs, Flavour flavour, Answer& problems) {
  MegatronConfig config = default_config(flavour);
  config.te_version = kTransformerEngine;
  config.pytorch_version = kPyTorch;
  for (const auto& [name, value] : knobs.items()) {
    if (const auto problem = set(config, name, value)) {
      problems.push_back(problem->key + ": " + problem->message +
                         (problem->hint.empty() ? "" : "; " + problem->hint));
    }
  }
  return config;
}

}  // namespace

Answer verdict_of_line(const std::string& line, Flavour flavour) {
  const auto parsed =
      too_deep(line) ? nlohmann::json() : nlohmann::json::parse(line, nullptr, false);
  if (!parsed.is_object()) return unreadable(nullptr, "not a JSON object");
  const Answer id = parsed.contains("id") ? Answer(parsed.at("id")) : Answer();
  const auto knobs = parsed.find("knobs");
  if (knobs == parsed.end() || !knobs->is_object())
    return unreadable(id, "knobs must be an object of Megatron's names");
  Answer problems = Answer::array(), now = Answer::array(), later = Answer::array();
  MegatronConfig config = read_knobs(*knobs, flavour, problems);
  Surroundings at = surroundings_of(config, flavour);
  const Checkable subject(std::move(config), std::move(at));
  for (const Finding& f : check_rules(subject.input())) {
    if (f.severity == Severity::error) (f.phase == Phase::runtime ? later : now).push_back(f.rule);
  }
  Answer answer{{"id", id},
                {"verdict", now.empty() ? "accepted" : "rejected"},
                {"rules", std::move(now)},
                {"later", std::move(later)}};
  if (!problems.empty()) answer["problems"] = std::move(problems);
  return answer;
}

}  // namespace moecast
