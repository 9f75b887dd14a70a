#pragma once
/// The work of a layer as an ordered list of priced operations. Everything about time is read from
/// these lists: sums (bound), host/GPU queue, two-stream overlap, breakdown and trace.
#include <cstdint>
#include <vector>

#include "moecast/layout.hpp"
#include "moecast/units.hpp"

namespace moecast {

enum class OpClass : std::uint8_t {
  dense_gemm,
  grouped_gemm,
  attention,
  permute,
  memory_bound,
  quantize,
  ep_comm,
  tp_comm,
  cp_comm,
  count
};
constexpr bool is_communication(OpClass c) { return c >= OpClass::ep_comm; }

/// Node of Megatron's EP-overlap schedule. A: attention, norm, router, dispatch preprocess; D:
/// dispatch; E: experts; C: combine with unpermute and residual. Ref:
/// models/common/model_chunk_schedule_plan.py.
enum class Part : std::uint8_t { attention, dispatch, experts, combine };

struct Op {
  const char* name = "";
  Seconds gpu;
  float launches = 1;  ///< host work in launch-equivalents
  OpClass cls = OpClass::memory_bound;
  Part part = Part::attention;
  std::uint16_t recompute =
      0;                   ///< mask of RecomputeModule: which modules run this forward op again
  std::uint8_t graph = 0;  ///< mask of GraphModule: which scopes capture it
  bool wgrad = false;
  bool sync = false;    ///< the host waits for the GPU after issuing it
  bool shared = false;  ///< shared expert (own stream under moe_shared_expert_overlap)
};

struct LayerOps {
  std::vector<Op> forward;   ///< in launch order
  std::vector<Op> backward;  ///< in launch order, without recomputation
};

}  // namespace moecast
