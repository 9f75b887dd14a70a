#pragma once
/// A layout in the few words that tables and headlines have room for.
#include <string>

#include "moecast/run.hpp"

namespace moecast {

struct LayoutWords {
  std::string precision, dispatcher;
  std::string overlap;    ///< "ep+wgrad", "shared", "-"
  std::string recompute;  ///< "mla_up_proj+moe_act", "full(uniform,1)", "-"
  std::string offload;    ///< "moe_act", "opt 0.5", "-"
  std::string graph;      ///< "te:attn+moe_router", "-"
};
LayoutWords layout_words(const Run& run);

/// Microbatches of one step per pipeline: global batch / (micro batch * DP); 0 where the sizes do
/// not say it.
int num_microbatches(const Run& run);
/// world / (tp cp pp) and world / (etp ep pp), 0 where a size is not positive.
int data_parallel(const Run& run);
int expert_data_parallel(const Run& run);

}  // namespace moecast
