#pragma once
/// Parameters that one pipeline rank holds, in elements, by how they are sharded and quantised
/// (memory.md section 1).
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

/// Per layer class, then summed over a rank's stages.
RankParams layer_rank_params(const Problem& p, const Layout& l, const LayerKind& layer);
RankParams rank_params(const Problem& p, const Layout& l, const PipelinePlan& plan, int pp_rank);

}  // namespace moecast
