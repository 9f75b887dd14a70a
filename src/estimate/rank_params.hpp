#pragma once
/// Parameters that one pipeline rank holds, in elements, by how they are sharded and quantised.
/// Ref: the modules of megatron/core/transformer and models/gpt.
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "estimate/problem.hpp"

namespace moecast {

struct RankParams {
  double dense = 0;   ///< dp-cp buffer: everything but routed experts
  double expert = 0;  ///< edp buffer
  double dense_linear =
      0;  ///< part of dense that TE linears hold (quantisable; no embedding, head, norms, router)
  double embedding = 0;  ///< word embedding copies on this rank (part of dense)
  double output_layer =
      0;  ///< output weight on this rank when it is its own tensor (part of dense)
  double dummy_wgrad =
      0;  ///< elements of TE's cached dummy weight gradients: each distinct linear shape once
  [[nodiscard]] double total() const { return dense + expert; }
};

/// What a pipeline rank holds parameters of.
struct RankContents {
  std::array<int, kMaxLayerClasses> layers{};  ///< by class, of MTP depths too
  int mtp_depths = 0;                          ///< with parameters of their own
  bool embedding = false;                      ///< a word table: the model's or MTP's copy
  bool loss = false;
};
RankContents rank_contents(const Problem& p, const PipelinePlan& plan, int pp_rank);

/// The parts that ranks are made of, for one TP, EP and ETP.
class ParamTables {
 public:
  ParamTables(const Problem& p, const Layout& l);
  [[nodiscard]] RankParams rank(const Problem& p, const RankContents& held) const;

 private:
  /// Elements of the distinct linears of a set of parts.
  [[nodiscard]] double distinct_linears(std::uint32_t parts) const;

  struct Part {
    RankParams params;
    std::vector<std::pair<double, double>> linears;  ///< (out, in) of every linear
  };
  std::vector<Part> parts_;  ///< layer classes, then the MTP projection and the output layer
  double vocabulary_ = 0;    ///< elements of a word table's shard
  mutable std::map<std::uint32_t, double> distinct_;
};
RankParams layer_rank_params(const Problem& p, const Layout& l, const LayerKind& layer);
inline RankParams rank_params(const Problem& p, const Layout& l, const PipelinePlan& plan,
                              int pp_rank) {
  return ParamTables(p, l).rank(p, rank_contents(p, plan, pp_rank));
}

}  // namespace moecast
