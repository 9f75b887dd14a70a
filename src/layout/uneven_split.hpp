#pragma once
/// Megatron's flags of uneven pipelines as a layout string.
#include <optional>
#include <string>

namespace moecast {

struct UnevenSplit {
  std::optional<int> first, last;        ///< decoder layers of the first and the last rank
  bool embedding = false, loss = false;  ///< count as a layer each
};

/// The string that gives every (rank, chunk) the same layers; empty when they do not divide. Ref:
/// megatron/core/transformer/transformer_block.py get_num_layers_to_build, transformer_layer.py
/// get_transformer_layer_offset.
std::string layout_string_of(const UnevenSplit& split, int layers, int pp, int vpp, int mtp_layers);

}  // namespace moecast
