#include "search/inner_rules.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "layout/knobs.hpp"

namespace moecast {
namespace {

constexpr auto kLevels = static_cast<std::size_t>(Level::count);

int level_of(std::string_view key) {
  const auto level = [](Level l) { return static_cast<int>(l); };
  if (key.starts_with("recompute.")) return level(Level::recompute);
  if (key.starts_with("cuda_graph.")) return level(Level::graph);
  if (key.starts_with("moe.dispatcher")) return level(Level::dispatcher);
  if (key == "moe.capacity_factor" || key == "moe.routing") return level(Level::offload);
  if (key.starts_with("moe.")) return level(Level::overlap);
  return key.starts_with("offload.") ? level(Level::offload) : -1;
}

struct InnerRule {
  bool (*broken)(const RuleInput&);
  int index;
};

/// By level; behind them those that read no inner knob.
const std::array<std::vector<InnerRule>, kLevels + 1>& rules_by_level() {
  static const auto lists = [] {
    std::array<std::vector<InnerRule>, kLevels + 1> by_level;
    const auto& table = rule_table();
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table[i].severity != Severity::error || !table[i].holds_for(Flavour::bridge)) continue;
      int level = -1;
      for (const std::string& key : keys_of(table[i])) level = std::max(level, level_of(key));
      const std::size_t at = level < 0 ? kLevels : static_cast<std::size_t>(level);
      by_level[at].push_back({table[i].broken, static_cast<int>(i)});
    }
    return by_level;
  }();
  return lists;
}

/// What a rule may read through another name: precision sets a recipe's flags, sequence
/// parallelism follows TP. (Tested against the rules on random meshes.)
bool implied(std::string_view axis, std::string_view key) {
  if (axis == "precision") {
    return key.starts_with("fp8_") || key.starts_with("fp4_") ||
           key == "reuse_grad_buf_for_mxfp8_param_ag";
  }
  return axis == "layout.tensor_model_parallel_size" && key == "layout.sequence_parallel";
}

/// Mesh axes that any of these rules reads.
std::vector<std::size_t> axes_read(const Space& s, const std::vector<InnerRule>& rules) {
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < s.axes.size(); ++axis) {
    const std::string& name = s.axes[axis].key;
    const auto reads = [&](const std::string& key) {
      const Knob* knob = find_knob(key);
      const std::string_view full = knob != nullptr ? knob->key : std::string_view(key);
      return full == name || implied(name, full);
    };
    const bool read = std::any_of(rules.begin(), rules.end(), [&](const InnerRule& rule) {
      const auto keys = keys_of(rule_table()[static_cast<std::size_t>(rule.index)]);
      return std::any_of(keys.begin(), keys.end(), reads);
    });
    if (read) axes.push_back(axis);
  }
  return axes;
}

}  // namespace

std::vector<std::size_t> mesh_axes_read(const Space& s, Level level) {
  return axes_read(s, rules_by_level()[static_cast<std::size_t>(level)]);
}

InnerRules::InnerRules(const Space& space, Legality& legality)
    : s_(space),
      legality_(legality),
      digits_(space.axes.size(), 0),
      tables_(kLevels),
      row_(kLevels, nullptr) {
  const std::size_t sizes[kLevels] = {s_.offloads.size(), s_.dispatchers.size(), s_.overlaps.size(),
                                      s_.graphs.size(), s_.recomputes.size()};
  std::size_t places = 1;
  for (std::size_t level = 0; level < kLevels; ++level) {
    places *= sizes[level];
    tables_[level].places = places;
    tables_[level].axes = mesh_axes_read(s_, static_cast<Level>(level));
  }
  for (const InnerRule& rule : rules_by_level()[kLevels]) {
    std::vector<std::size_t> axes = axes_read(s_, {rule});
    auto group = std::find_if(mesh_groups_.begin(), mesh_groups_.end(),
                              [&](const MeshGroup& g) { return g.axes == axes; });
    if (group == mesh_groups_.end()) {
      std::size_t values = 1;
      for (const std::size_t axis : axes) values *= s_.axes[axis].size;
      group = mesh_groups_.insert(
          group, {std::move(axes), {}, std::vector<std::int16_t>(values, kUnknown)});
    }
    group->rules.push_back(rule.index);
  }
}

void InnerRules::count_digits(std::size_t mesh) {
  for (std::size_t axis = digits_.size(); axis-- > 0;) {
    digits_[axis] = mesh % s_.axes[axis].size;
    mesh /= s_.axes[axis].size;
  }
}

std::uint64_t InnerRules::key_of(const std::vector<std::size_t>& axes) const {
  std::uint64_t key = 0;
  for (const std::size_t axis : axes) key = key * s_.axes[axis].size + digits_[axis];
  return key;
}

int InnerRules::refusing_mesh(std::size_t mesh) {
  mesh_ = mesh;
  count_digits(mesh);
  int first = -1;
  for (MeshGroup& group : mesh_groups_) {
    std::int16_t& answer = group.answer[key_of(group.axes)];
    if (answer == kUnknown) {
      const RuleInput& input = legality_.input(s_.mesh(mesh));
      const auto refuses = [&](int rule) {
        return rule_table()[static_cast<std::size_t>(rule)].broken(input);
      };
      const auto at = std::find_if(group.rules.begin(), group.rules.end(), refuses);
      answer = static_cast<std::int16_t>(at == group.rules.end() ? -1 : *at);
    }
    if (answer >= 0 && (first < 0 || answer < first)) first = answer;
    if (first == 0) break;  // the sizes, by which the others divide
  }
  return first;
}

void InnerRules::enter(std::size_t mesh) {
  if (mesh != mesh_) count_digits(mesh);
  mesh_ = mesh;
  for (std::size_t level = 0; level < kLevels; ++level) {
    Row& row = tables_[level].rows[key_of(tables_[level].axes)];
    if (row.rules.empty()) row.rules.assign(tables_[level].places, kUnknown);
    row_[level] = &row;
  }
}

std::size_t InnerRules::place(Level level, const InnerIndex& i) const {
  std::size_t at = i.offload;
  if (level >= Level::dispatcher) at = at * s_.dispatchers.size() + i.dispatcher;
  if (level >= Level::overlap) at = at * s_.overlaps.size() + i.overlap;
  if (level >= Level::graph) at = at * s_.graphs.size() + i.graph;
  if (level >= Level::recompute) at = at * s_.recomputes.size() + i.recompute;
  return at;
}

namespace {

int first_of_level(std::size_t level, const RuleInput& input) {
  for (const InnerRule& rule : rules_by_level()[level]) {
    if (rule.broken(input)) return rule.index;
  }
  return -1;
}

}  // namespace

std::int16_t InnerRules::ask(Level level, const InnerIndex& i) {
  return static_cast<std::int16_t>(
      first_of_level(static_cast<std::size_t>(level), legality_.input(candidate(s_, mesh_, i))));
}

const InnerRules::Refused& InnerRules::refused_recomputes(InnerIndex i) {
  const std::size_t choices = s_.recomputes.size();
  Row& row = *row_[static_cast<std::size_t>(Level::recompute)];
  row.recomputes.resize(row.rules.size() / choices);
  Refused& refused = row.recomputes[place(Level::graph, i)];
  if (!refused.any.empty()) return refused;
  refused.any.resize(words_of(choices));
  for (std::size_t r = 0; r < choices; ++r) {
    i.recompute = static_cast<std::uint16_t>(r);
    const int rule = refusing(Level::recompute, i);
    if (rule < 0) continue;
    auto list = std::find_if(refused.by_rule.begin(), refused.by_rule.end(),
                             [&](const auto& known) { return known.first == rule; });
    if (list == refused.by_rule.end())
      list = refused.by_rule.insert(list, {rule, std::vector<ChoiceBits>(words_of(choices))});
    add_bit(list->second.data(), r);
    add_bit(refused.any.data(), r);
  }
  const auto same = std::find(sets_.begin(), sets_.end(), refused.any);
  refused.set = static_cast<int>(same - sets_.begin());
  if (same == sets_.end()) sets_.push_back(refused.any);
  return refused;
}

int InnerRules::refusing(const InnerIndex& i) {
  for (std::size_t level = 0; level < kLevels; ++level) {
    if (const int rule = refusing(static_cast<Level>(level), i); rule >= 0) return rule;
  }
  return -1;
}

}  // namespace moecast
