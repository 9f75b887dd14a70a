#include "estimate/dims.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace moecast {

ShardKey shard_key(const Layout& l) {
  return {l.tp,
          l.cp,
          l.ep,
          l.etp,
          l.micro_batch_size,
          l.precision,
          l.dispatcher,
          l.dispatcher_num_sms,
          l.sp(),
          l.tp_comm_overlap,
          l.cp_comm_type,
          l.grad_dtype};
}

std::uint16_t selective_modules(const Layout& l) {
  return l.recompute_granularity == RecomputeGranularity::selective ? l.recompute_modules.bits
                                                                    : std::uint16_t{0};
}

std::uint8_t captured_modules(const Layout& l) {
  const bool layered = l.cuda_graph_impl == CudaGraphImpl::transformer_engine ||
                       l.cuda_graph_impl == CudaGraphImpl::local;
  if (!layered) return 0;
  return l.cuda_graph_scope.empty() ? std::uint8_t{0xff}
                                    : static_cast<std::uint8_t>(l.cuda_graph_scope.bits);
}

namespace {

/// Rows of the busiest EP rank over the mean, from a histogram of tokens per expert (experts in
/// order, E / EP per rank).
double histogram_imbalance(const std::vector<double>& tokens, int ep) {
  double total = 0;
  for (const double t : tokens) total += t;
  if (total <= 0 || ep <= 0) return 1;
  const std::size_t per_rank =
      std::max<std::size_t>(1, tokens.size() / static_cast<std::size_t>(ep));
  double worst = 0;
  for (std::size_t first = 0; first < tokens.size(); first += per_rank) {
    double rank = 0;
    for (std::size_t i = first; i < std::min(tokens.size(), first + per_rank); ++i)
      rank += tokens[i];
    worst = std::max(worst, rank);
  }
  return worst * ep / total;
}

double imbalance_of(const Problem& p, int ep) {
  if (p.run.routing.kind != Routing::Kind::tokens_per_expert) return p.imbalance;
  return histogram_imbalance(p.run.routing.tokens_per_expert, ep);
}

}  // namespace

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
  d.imbalance = imbalance_of(p, k.ep);
  if (moe.num_moe_experts > 0) {
    d.local_experts = static_cast<double>(moe.num_moe_experts) / k.ep;
    d.expert_ffn = static_cast<double>(moe.moe_ffn_hidden_size) / k.etp;
    d.expert_width = moe.moe_latent_size > 0 ? moe.moe_latent_size : p.model.hidden_size;
    const double balanced = d.n * moe.moe_router_topk * k.etp;
    const bool drop =
        p.run.capacity_factor > 0;  // drop and pad: every expert takes exactly its capacity
    const int align = row_alignment(k.precision, p.features.fused_grouped_mlp);
    const double padding = align > 0 && !drop ? d.local_experts * align / 2.0 : 0;
    d.rows = balanced * (drop ? p.run.capacity_factor : d.imbalance) + padding;
    d.rows_held = std::max(d.rows, balanced * p.dispatch_capacity);
  }
  return d;
}

}  // namespace moecast
