#pragma once
/// Rules answered from tables: one that reads a knob of an inner axis is asked once for every
/// combination of the axes that its level reads, one that reads none once for every combination of
/// the mesh axes that it reads, not once per candidate or mesh.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "estimate/legal.hpp"
#include "search/mesh_memory.hpp"

namespace moecast {

/// The inner axes in the order of their loops. A rule belongs to the last one whose knobs it reads,
/// and refuses everything below that point of the loops.
enum class Level : std::uint8_t { offload, dispatcher, overlap, graph, recompute, count };

class InnerRules {
 public:
  InnerRules(const Space& space, Legality& legality);
  /// Index of the first rule that reads no inner knob and refuses the mesh, or -1.
  [[nodiscard]] int refusing_mesh(std::size_t mesh);
  /// Later questions are about this mesh, which refusing_mesh() was asked about.
  void enter(std::size_t mesh);
  /// Index of the first rule of the level that refuses this point, or -1.
  [[nodiscard]] int refusing(Level level, const InnerIndex& i) {
    std::int16_t& known = row_[static_cast<std::size_t>(level)]->rules[place(level, i)];
    if (known == kUnknown) known = ask(level, i);
    return known;
  }
  /// What the rules of the last level say of all recompute choices at once: bits, as in
  /// mesh_memory.hpp.
  struct Refused {
    std::vector<ChoiceBits> any;
    std::vector<std::pair<int, std::vector<ChoiceBits>>> by_rule;
    int set = -1;  ///< number of `any` among those that were asked: equal numbers, equal bits
  };
  const Refused& refused_recomputes(InnerIndex i);
  /// Of any level.
  [[nodiscard]] int refusing(const InnerIndex& i);

 private:
  static constexpr std::int16_t kUnknown = -2;
  struct Row {
    std::vector<std::int16_t> rules;  ///< by place
    std::vector<Refused> recomputes;  ///< by place of the choices above; of the last level only
  };
  struct Table {
    std::vector<std::size_t> axes;  ///< mesh axes that its rules read
    std::size_t places = 1;         ///< points of the inner axes down to its level
    std::unordered_map<std::uint64_t, Row> rows;
  };
  /// Rules of the mesh that read the same axes.
  struct MeshGroup {
    std::vector<std::size_t> axes;
    std::vector<int> rules;            ///< indices into the rule table
    std::vector<std::int16_t> answer;  ///< by the axes' values: the first that refuses, or -1
  };
  void count_digits(std::size_t mesh);
  [[nodiscard]] std::uint64_t key_of(const std::vector<std::size_t>& axes) const;
  [[nodiscard]] std::size_t place(Level level, const InnerIndex& i) const;
  [[nodiscard]] std::int16_t ask(Level level, const InnerIndex& i);

  const Space& s_;
  Legality& legality_;
  std::size_t mesh_ = 0;
  std::vector<std::size_t> digits_;  ///< of the mesh, one per axis
  std::vector<MeshGroup> mesh_groups_;
  std::vector<Table> tables_;                  ///< per level
  std::vector<Row*> row_;                      ///< of this mesh, per level
  std::vector<std::vector<ChoiceBits>> sets_;  ///< of refused recompute choices
};

/// Mesh axes that rules of a level read (tested against the rules themselves).
std::vector<std::size_t> mesh_axes_read(const Space& s, Level level);

}  // namespace moecast
