// Persistent communication buffers of the EP dispatchers. Refs: DeepEP
// csrc/legacy/config.hpp (main dd758ca), csrc/hybrid_ep (branch hybrid-ep 94a9f8f).
#include <algorithm>

#include "estimate/rank_state.hpp"

namespace moecast {
namespace {

/// NVLink and RDMA rings of every channel (two SMs each).
void add_deepep(Terms& t, const ShardKey& k, double hidden, int sms) {
  const int group = k.etp * k.ep;
  if (group <= 1) return;
  const double channels = sms / 2.0, row = 2 * hidden;
  const double peers = std::min(group, 8), nodes = std::max(group / 8, 1);
  const double nvl_recv = group <= 8     ? 256
                          : group <= 64  ? 288
                          : group <= 96  ? 480
                          : group <= 128 ? 560
                                         : 720;
  const double per_token = row + 8 + 128 * 8 + 128 * 4 + 128 * 4;
  t.add("DeepEP NVLink rings",
        channels * peers * (2 * nodes + 3) * 4 + channels * peers * nvl_recv * per_token, channels,
        "channels x peers x chunk of tokens x (2h + 2056)");
  if (group > 8) {
    t.add("DeepEP RDMA rings",
          channels * nodes * 18 * 2 * 4 + channels * nodes * 128 * 2 * (per_token + 16), channels,
          "channels x nodes x 2 x 128 tokens x (2h + 2072)");
  }
}

/// Room for every token of the group on one rank; more for what crosses domains.
void add_hybridep(Terms& t, const Problem& p, const ShardKey& k, const Dims& d) {
  const int group = k.etp * k.ep;
  const double domain = p.cluster.span(1, group).ranks_per_domain;
  const double tokens = std::max(64.0, d.n), all = tokens * group, h = d.expert_width;
  const double probs = d.local_experts * domain * 4, scales = h / 128 * 4;
  t.add("HybridEP tokens, shared by dispatch and combine", all * h * 2, all, "2h n EP ETP");
  t.add("HybridEP probabilities and scales", all * (probs + scales), all,
        "n EP ETP (4 e ranks-per-domain + 4h / 128)");
  const double others = group / domain - 1;
  if (others <= 0) return;
  const double E = p.model.moe.num_moe_experts;
  t.add("HybridEP dispatch between domains",
        tokens * (h * 2 + E * 4 + scales) + tokens * others * (h * 2 + probs + scales),
        tokens * others, "n (2h + 4E) + n (domains - 1) (2h + probs)");
  t.add("HybridEP combine between domains", 2 * tokens * others * (h * 2 + probs), tokens * others,
        "2 n (domains - 1) (2h + probs)");
}

}  // namespace

Terms dispatcher_terms(const Problem& p, const ShardKey& k, const Dims& d) {
  Terms t;
  if (p.model.moe.num_moe_experts == 0) return t;
  switch (k.dispatcher) {
    case Dispatcher::alltoall:
      break;  // transient: counted at the combine moment
    case Dispatcher::allgather:
      t.add("all-gathered tokens", 2 * d.n * k.etp * k.ep * d.expert_width, d.n * k.etp * k.ep,
            "2h n EP ETP");
      break;
    case Dispatcher::deepep:
      add_deepep(
          t, k, d.expert_width,
          k.dispatcher_num_sms > 0 ? k.dispatcher_num_sms : default_num_sms(k.dispatcher, 1));
      break;
    case Dispatcher::hybridep:
      add_hybridep(t, p, k, d);
      break;
  }
  return t;
}

}  // namespace moecast
