#pragma once
/// Writer of a layer's saved tensors (layer_memory.cpp, saved_mixer.cpp), named by literals.
#include <cstdint>
#include <string_view>

#include "estimate/layer_memory.hpp"

namespace moecast {

struct SavedWriter {
  SavedWriter(const Problem& p, const ShardKey& k) : problem(p), key(k), dims(make_dims(p, k)) {
    memory.saved.reserve(32);  // as many as a layer has
  }
  const Problem& problem;
  const ShardKey& key;
  const Dims dims;
  LayerMemory memory;
  std::uint8_t captured_by = 0;  ///< CUDA-graph modules that capture what is saved next

  void save(std::string_view name, double bytes, std::uint16_t dropped_by,
            std::uint16_t offloaded_by, std::string_view formula) {
    if (bytes > 0)
      memory.saved.push_back({name, bytes, dropped_by, offloaded_by, captured_by, formula});
  }
  [[nodiscard]] bool low_precision() const { return key.precision != Precision::bf16; }
  /// Bytes per element of a quantised copy that waits for wgrad.
  [[nodiscard]] double quantised_bytes() const { return operand_bytes(key.precision); }
  /// Bytes per element that a linear keeps of its input: the quantised copy, or the bf16 tensor
  /// itself.
  [[nodiscard]] double linear_input_bytes() const {
    return low_precision() ? quantised_bytes() : 2;
  }
  /// Bytes per element of q, k, v and the output that the attention kernel keeps.
  [[nodiscard]] double attention_bytes() const { return problem.features.fp8_attention ? 1 : 2; }
};

void save_mixer(SavedWriter& w, const Mixer& m);

}  // namespace moecast
