#pragma once
/// Which inner choices of one mesh fit. Choices that differ in nothing that memory reads share the
/// answer: activations are computed once per dispatcher, EP overlap and recomputation, for all
/// graphs. Sets of bits have one per recompute choice.
#include <cstdint>
#include <vector>

#include "estimate/evaluate.hpp"
#include "search/space.hpp"

namespace moecast {

using ChoiceBits = std::uint64_t;
inline constexpr std::size_t kBitsPerWord = 64;
inline std::size_t words_of(std::size_t choices) {
  return (choices + kBitsPerWord - 1) / kBitsPerWord;
}
inline bool has_bit(const std::vector<ChoiceBits>& set, std::size_t choice) {
  return ((set[choice / kBitsPerWord] >> choice % kBitsPerWord) & 1) != 0;
}
inline void add_bit(ChoiceBits* set, std::size_t choice) {
  set[choice / kBitsPerWord] |= ChoiceBits{1} << choice % kBitsPerWord;
}

class MeshMemory {
 public:
  MeshMemory(const Problem& p, const Space& s, double headroom);
  /// Later questions are about this mesh and offload choice.
  void enter(std::uint32_t mesh, const Layout& layout, const MeshTables* tables);
  /// `quick`: how much is missing is not asked, so the first rank that shows it is enough.
  [[nodiscard]] bool fits(const InnerIndex& i, const ShardTables& shard, bool quick);
  /// Bytes, of what fits() or was asked without `quick`.
  [[nodiscard]] double reserved(const InnerIndex& i) const {
    return known(i).reserved[i.graph * s_.recomputes.size() + i.recompute];
  }
  /// Bytes that do not fit (negative: bytes left).
  [[nodiscard]] double missing(double reserved) const { return reserved + headroom_ - capacity_; }
  /// Of the same recompute choices it is known that they fit, or do not: at two points of the other
  /// axes.
  [[nodiscard]] bool alike(const InnerIndex& a, const InnerIndex& b) const;
  /// Recompute choices known not to fit with these other choices.
  [[nodiscard]] const ChoiceBits* too_big(const InnerIndex& i) const {
    return &known(i).too_big[i.graph * words_];
  }

 private:
  struct Known {
    std::vector<ChoiceBits> fits, too_big;  ///< [graph * words + word]
    std::vector<double> reserved;           ///< [graph * recompute choices + choice]
    bool bounded = false;                   ///< the lower bound of all choices was asked
  };
  /// What layers keep under every recompute choice: alike in all meshes of a shard group.
  struct Kept {
    bool any = false, alike = false;
    std::uint64_t group = 0;
    LayoutMemory::Sets sets;  ///< [class * lanes + choice]
  };
  Known& known(const InnerIndex& i) {
    return known_[2u * i.dispatcher + (s_.overlaps[i.overlap].overlap ? 1 : 0)];
  }
  [[nodiscard]] const Known& known(const InnerIndex& i) const {
    return known_[2u * i.dispatcher + (s_.overlaps[i.overlap].overlap ? 1 : 0)];
  }
  void ask(const InnerIndex& i, const ShardTables& shard, bool quick, Known& k);
  void ask_all(InnerIndex i, const ShardTables& shard, Known& k);
  const Kept& kept(InnerIndex i, const ShardTables& shard);

  const Problem& p_;
  const Space& s_;
  double headroom_, capacity_;
  std::size_t words_;
  std::vector<GraphUse> graphs_;
  std::uint32_t mesh_ = 0;
  Layout layout_;
  const MeshTables* tables_ = nullptr;
  std::vector<Known> known_;  ///< [2 * dispatcher + EP overlap]
  std::vector<Kept> kept_;    ///< [offload * dispatchers + dispatcher]
  std::vector<double> least_, least_of_rank_, peaks_;
};

}  // namespace moecast
