// Workspaces of the libraries, and what lives outside the allocator. Sizes: cuBLAS of PyTorch and
// TransformerEngine on compute capability 9 and later (32 MiB each; one more per stream of the
// grouped GEMM), TransformerEngine module/base.py get_dummy_wgrad, Megatron
// core/tensor_parallel/layers.py (buffer "mpu"), core/pipeline_parallel/schedules.py.
#include <algorithm>

#include "estimate/rank_state.hpp"

namespace moecast {

Terms workspace_terms(const Problem& p, const Layout& l, const Dims& d, const RankParams& params,
                      int pp_rank) {
  Terms t;
  t.add("cuBLAS workspaces", kCublasWorkspaces, 2, "2 x 32 MiB");
  if (p.features.transformer_engine && p.model.moe.num_moe_experts > 0)
    t.add("grouped GEMM workspaces", 4 * kCublasWorkspace, 4, "4 streams x 32 MiB");
  t.add("dummy weight gradients", 2 * params.dummy_wgrad, params.dummy_wgrad,
        "2 B per element of each distinct linear shape");
  if (l.sp()) t.add("sequence-parallel gather buffer", 2 * d.h * d.N, d.N, "2hN");
  if (pp_rank > 0) t.add("input gradient of the microbatch before", 2 * d.h * d.n, d.n, "2hn");
  return t;
}

Terms outside_allocator_terms(const Problem& p, const Layout& l) {
  const int dp = l.dp(p.world), edp = l.edp(p.world);
  int communicators = p.world > 1 ? 1 : 0;
  for (const int size : {l.tp, l.cp, dp * l.cp, l.pp, l.ep, l.etp * l.ep, edp})
    communicators += size > 1 ? 1 : 0;
  Terms t;
  t.add("CUDA context and libraries", p.stack.context.value, 1, "measured per stack");
  if (communicators > 0)
    t.add("first NCCL communicator", p.stack.first_communicator.value, 1, "measured per stack");
  t.add("further NCCL communicators", std::max(0, communicators - 1) * p.stack.communicator.value,
        communicators - 1, "measured per group that communicates");
  return t;
}

}  // namespace moecast
