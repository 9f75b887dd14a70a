#include "estimate/dims.hpp"

#include <cmath>

namespace moecast {

ShardKey shard_key(const Layout& l) {
  return {l.tp, l.cp, l.ep, l.etp, l.micro_batch_size, l.precision, l.dispatcher, l.dispatcher_num_sms,
          l.sp(), l.tp_comm_overlap, l.cp_comm_type, l.grad_dtype};
}

double mean_context(double s, int window) {
  if (window <= 0 || window >= s) return s / 2;
  return window - window * (window - 1.0) / (2 * s);
}

Dims make_dims(const Problem& p, const ShardKey& k) {
  const MoeSpec& moe = p.model.moe;
  Dims d;
  d.t = k.tp;
  d.N = static_cast<double>(p.seq_length) * k.micro_batch_size / k.cp;
  d.n = k.sequence_parallel ? d.N / k.tp : d.N;
  d.h = p.model.hidden_size;
  d.vocab = static_cast<double>(padded_vocab_size(p.model, k.tp)) / k.tp;
  d.glu = p.model.gated_linear_unit ? 2 : 1;
  if (moe.num_moe_experts > 0) {
    d.local_experts = static_cast<double>(moe.num_moe_experts) / k.ep;
    d.expert_ffn = static_cast<double>(moe.moe_ffn_hidden_size) / k.etp;
    d.expert_width = moe.moe_latent_size > 0 ? moe.moe_latent_size : p.model.hidden_size;
    const double balanced = d.n * moe.moe_router_topk * k.etp;
    const bool drop = p.run.capacity_factor > 0;  // drop and pad: every expert takes exactly its capacity
    const int align = row_alignment(k.precision, p.features.fused_grouped_mlp);
    const double padding = align > 0 && !drop ? d.local_experts * align / 2.0 : 0;
    d.rows = balanced * (drop ? p.run.capacity_factor : p.imbalance) + padding;
    d.rows_held = std::max(d.rows, balanced * p.dispatch_capacity);
  }
  return d;
}

}  // namespace moecast
