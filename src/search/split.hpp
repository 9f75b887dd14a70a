#pragma once
/// Where the layers of a pipeline lie: the automatic split improved against exact steps and memory.
#include <optional>
#include <string>

#include "estimate/evaluate.hpp"

namespace moecast {

struct Split {
  std::string layout;  ///< Megatron's pipeline_model_parallel_layout
  Outcome outcome;
};

/// A legal split of the layout's stages whose exact step is shorter than `automatic`'s and that
/// reserves at most `room` bytes: from the best of the automatic split and of balances of the
/// seconds of ranks and chunks, moves of a layer (and of the MTP layers) as long as one helps, or
/// until `tries` splits were walked. Nothing when the automatic split is as good, or is not what
/// the layout asks for.
std::optional<Split> better_split(const Problem& p, const Layout& l, const Outcome& automatic,
                                  double room, int tries = 100);

}  // namespace moecast
