#include "layout/routing_value.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "core/text.hpp"
#include "layout/knob_values.hpp"

namespace moecast {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxImbalance = 1e6;

std::string trimmed(std::string_view text) {
  const std::string_view blanks = " \t\r";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(blanks) - first + 1));
}

Node number(std::string_view text) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.scalar = trimmed(text);
  return node;
}

/// Collects the lines of the file; expert numbers, where given, decide the place.
class WeightReader {
 public:
  explicit WeightReader(std::string file) : file_(std::move(file)) {}

  void line(int at, const std::string& text) {
    const std::size_t comma = text.find(',');
    const bool pair = comma != std::string::npos;
    const auto weight = number(pair ? text.substr(comma + 1) : text).as_double();
    const auto expert = pair ? number(text.substr(0, comma)).as_int()
                             : std::optional(static_cast<long long>(weights_.size()));
    const bool may_be_names = !seen_line_ && !weight;
    seen_line_ = true;
    if (may_be_names) return;
    if (!expert || !weight || *weight < 0 || *expert < 0) {
      return complain(at, quoted_excerpt(text) + " is not a weight >= 0 or a pair expert,tokens");
    }
    if (!weights_.emplace(*expert, *weight).second) {
      complain(at, fmt::format("expert {} is given twice", *expert));
    }
  }

  Result<std::vector<double>> finish() {
    std::vector<double> result;
    double total = 0;
    for (const auto& [expert, weight] : weights_) {
      if (expert != static_cast<long long>(result.size()) && problems_.empty()) {
        complain(0, fmt::format("expert {} is missing", result.size()));
      }
      result.push_back(weight);
      total += weight;
    }
    if (problems_.empty() && !(total > 0 && total <= std::numeric_limits<double>::max())) {
      complain(0, "the weights must have a finite sum above 0");
    }
    if (!problems_.empty()) return std::move(problems_);
    return result;
  }

 private:
  void complain(int line, std::string message) {
    problems_.push_back({file_, line, 0, "moe.routing.tokens_per_expert", std::move(message), ""});
  }

  std::string file_;
  std::map<long long, double> weights_;
  bool seen_line_ = false;
  Diagnostics problems_;
};

/// base_dir first, then the working directory.
fs::path locate(const std::string& path, const std::string& base_dir) {
  std::error_code ignored;
  fs::path beside = fs::path(base_dir) / path;  // an absolute path stays itself
  return fs::exists(beside, ignored) ? beside : fs::path(path);
}

std::string set_file(const Value& value, const std::string& base_dir, Routing& out) {
  if (!value.is_string()) return must_be("the name of a CSV file", value);
  auto weights = read_tokens_per_expert(value.get<std::string>(), base_dir);
  if (!weights.ok()) {
    std::string first = to_string(weights.problems().front());
    const std::size_t more = weights.problems().size() - 1;
    return more == 0 ? first : fmt::format("{} (and {} more)", first, more);
  }
  out = {Routing::Kind::tokens_per_expert, 1.0, value.get<std::string>(), weights.take()};
  return "";
}

}  // namespace

double natural_imbalance(int ep) { return 1 + std::round(20 * std::log2(std::max(1, ep))) / 100; }

Result<std::vector<double>> read_tokens_per_expert(const std::string& path,
                                                   const std::string& base_dir) {
  const fs::path file = locate(path, base_dir);
  auto unreadable = [&](const std::string& why) {
    return Diagnostic{path, 0, 0, "moe.routing.tokens_per_expert", why, ""};
  };
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return unreadable("is not there, or not a file");
  if (fs::file_size(file, error) > kMaxFileBytes) return unreadable("is larger than 4 MiB");
  std::ifstream stream(file);
  if (!stream) return unreadable("cannot be read");
  WeightReader reader(path);
  std::string text;
  for (int number = 1; std::getline(stream, text); ++number) {
    text = trimmed(text.substr(0, text.find('#')));
    if (!text.empty()) reader.line(number, text);
  }
  return reader.finish();
}

std::string RoutingKind::domain() {
  return "force_balance | {imbalance: x >= 1} | {tokens_per_expert: file.csv}";
}

std::string set_routing(const Value& value, const std::string& base_dir, Routing& out) {
  if (value == "force_balance") {
    out = {};
    return "";
  }
  if (value.is_object() && value.size() == 1) {
    if (value.contains("imbalance")) {
      double ratio = 1;
      std::string problem = NumberKind{1, kMaxImbalance}.parse(value["imbalance"], ratio);
      if (problem.empty()) out = {Routing::Kind::imbalance, ratio, {}, {}};
      return problem.empty() ? "" : "imbalance " + problem;
    }
    if (value.contains("tokens_per_expert")) {
      return set_file(value["tokens_per_expert"], base_dir, out);
    }
  }
  return must_be(RoutingKind::domain(), value);
}

Value RoutingKind::show(const Routing& routing) {
  std::string kind(enum_text(routing.kind));
  switch (routing.kind) {
    case Routing::Kind::force_balance:
      return kind;
    case Routing::Kind::imbalance:
      return {{kind, routing.imbalance}};
    case Routing::Kind::tokens_per_expert:
      return {{kind, routing.tokens_per_expert_file}};
  }
  return nullptr;
}

}  // namespace moecast
