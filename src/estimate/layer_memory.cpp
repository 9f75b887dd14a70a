#include "estimate/layer_memory.hpp"

#include <algorithm>
#include <cstdint>

#include "estimate/saved.hpp"

namespace moecast {
namespace {

constexpr auto kMoeBlock = mask(RecomputeModule::moe);

void save_mlp_norm(SavedWriter& w, std::uint16_t dropped_by, bool plain_output) {
  const Dims& d = w.dims;
  w.save("mlp norm input", 2 * d.h * d.n, 0, mask(OffloadModule::mlp_norm), "2hn");
  w.save("mlp norm output", (plain_output ? 2 : w.linear_input_bytes()) * d.h * d.n, dropped_by,
         mask(OffloadModule::mlp_norm), "2hn");
  w.save("mlp norm rstd", 4 * d.n, dropped_by, 0, "4n");
}

void save_dense_mlp(SavedWriter& w) {
  const Dims& d = w.dims;
  const double f = w.problem.model.ffn_hidden_size;
  const bool local = !w.problem.features.transformer_engine;
  w.captured_by = mask(GraphModule::mlp);
  save_mlp_norm(w, local ? mask(RecomputeModule::layernorm) : std::uint16_t{0}, false);
  w.save("fc1 output", 2 * d.glu * f * d.N / d.t, mask(RecomputeModule::mlp), 0, "2uf N / t");
  w.save("activation output", w.linear_input_bytes() * f * d.N / d.t, mask(RecomputeModule::mlp), 0,
         "2f N / t");
  // backward moments relative to everything stored: dY + 4fN/t in the activation's backward (T);
  // the local stack adds bf16 weight gradients of one linear and their dummy
  const double dy = 2 * d.h * d.n;
  const double act = dy + 2 * d.glu * f * d.N / d.t;
  const double weights = local ? 2 * f * d.h / d.t * d.glu : 0;
  const double fc1 = dy - 2 * f * d.N / d.t + 2 * d.h * d.N + weights;
  const double fc2 = dy + 2 * f * d.N / d.t + (local ? 2 * f * d.h / d.t : 0);
  Transient& worst = w.memory.backward;
  worst.consider(act, "MLP act backward: dY + 2u f N / t");
  worst.consider(fc1, local ? "fc1 backward: dY - 2f N / t + 2hN + 2 w(fc1)"
                            : "fc1 backward: dY - 2f N / t + 2hN");
  worst.consider(fc2,
                 local ? "fc2 backward: dY + 2f N / t + 2 w(fc2)" : "fc2 backward: dY + 2f N / t");
}

void save_router(SavedWriter& w) {
  const Dims& d = w.dims;
  const MoeSpec& moe = w.problem.model.moe;
  const double E = moe.num_moe_experts, k = moe.moe_router_topk;
  const bool aux = !moe.expert_bias;
  // unfused: scores 4E, probs 4E, map E, sort or row-id map 8E; top-k index and values. Auxiliary
  // loss: TE keeps its scores beside the router's (4E more), the local stack only those (17E
  // measured with it)
  const bool te = w.problem.features.transformer_engine;
  const double per_token = 17 * E + (aux && te ? 4 * E : 0) + (te ? 12 : 20) * k;
  const double kept = 5 * E;
  w.memory.attributes = kept * d.n;
  w.save("router probs and map", kept * d.n, 0, 0, "5E n");
  w.save("router scores, top-k, index maps", (per_token - kept) * d.n, kMoeBlock, 0,
         "(12E + 4E aux + 12k) n");
}

void save_experts(SavedWriter& w) {
  const Dims& d = w.dims;
  const double R = d.rows_held, f = d.expert_ffn, hx = d.expert_width;
  const bool local = !w.problem.features.transformer_engine;
  const auto group = mask(OffloadModule::fused_group_mlp);
  w.save("expert fc1 input", w.linear_input_bytes() * hx * R, kMoeBlock,
         static_cast<std::uint16_t>(mask(OffloadModule::expert_fc1) | group), "2 hx R");
  w.save("expert fc1 output", 2 * d.glu * f * R, kMoeBlock,
         static_cast<std::uint16_t>(mask(OffloadModule::moe_act) | group), "2u fe R");
  w.save("moe act output", w.linear_input_bytes() * f * R,
         static_cast<std::uint16_t>(kMoeBlock | mask(RecomputeModule::moe_act)), group, "2 fe R");
  w.save("routed probs", 4 * R, kMoeBlock, 0, "4R");

  const double dy = 2 * d.h * d.n;
  const double e = std::max(1.0, d.local_experts);
  Transient& worst = w.memory.backward;
  if (local && w.problem.features.sequential_experts) {
    // one expert at a time; the GEMM accumulates, so only a dummy gradient is allocated
    const double w2 = hx * f, w1 = d.glu * w2;
    worst.consider(
        dy + 2 * hx * R +
            std::max({2 * hx * R, 2 * f * R / e + 2 * w2, 2 * hx * R / e - 2 * f * R / e + 2 * w1}),
        "one expert's backward: dY + 2hx R + max(2hx R, (2fe R)/e + 2w2, ...)");
    return;
  }
  const double x = local ? 4 * e * hx * f : 0;  // bf16 weight gradient and its dummy
  const double fc2 = dy + 2 * hx * R + 2 * f * R + x;
  const double act = dy + 2 * d.glu * f * R + (local ? 4 * R : 0);
  const double fc1 = dy - 2 * f * R + 2 * hx * R + x * d.glu;
  worst.consider(fc2, local ? "expert fc2 backward: dY + 2hx R + 2fe R + 4e hx fe"
                            : "expert fc2 backward: dY + 2hx R + 2fe R");
  worst.consider(act, "expert act backward: dY + 2u fe R");
  worst.consider(fc1, local ? "expert fc1 backward: dY - 2fe R + 2hx R + 4e u hx fe"
                            : "expert fc1 backward: dY - 2fe R + 2hx R");
}

/// Combine of the forward: permuted send rows, received rows, expert output and its unsorted copy,
/// combined rows, layer output. Without an exchange the local stack has one copy less (recorded on
/// an H200, bench/memory_probe).
void save_combine(SavedWriter& w) {
  const Dims& d = w.dims;
  const double rows = 2 * d.expert_width * d.rows_held, output = 2 * d.h * d.n;
  const double shared =
      w.problem.model.moe.moe_shared_expert_intermediate_size > 0 ? 2 * d.h * d.n : 0;
  const bool exchange = w.key.ep * w.key.etp > 1;
  if (w.problem.features.transformer_engine) {
    w.memory.forward_combine = 4 * rows + output + shared;
  } else {
    w.memory.forward_combine = (exchange ? 4 * rows + output : 3 * rows) + 4 * d.rows_held + shared;
    w.memory.refill_moe_act = 4 * d.expert_ffn * d.rows_held;
  }
}

void save_shared(SavedWriter& w) {
  const Dims& d = w.dims;
  const double sh = w.problem.model.moe.moe_shared_expert_intermediate_size;
  if (sh == 0) return;
  const auto dropped =
      static_cast<std::uint16_t>(kMoeBlock | mask(RecomputeModule::shared_experts));
  w.save("shared fc1 output", 2 * d.glu * sh * d.N / d.t, dropped, 0, "2u sh N / t");
  w.save("shared activation output", w.linear_input_bytes() * sh * d.N / d.t, dropped, 0,
         "2 sh N / t");
  if (w.low_precision())
    w.save("shared input, quantised", w.quantised_bytes() * d.h * d.n, dropped, 0, "1hn");
}

void save_latent(SavedWriter& w) {
  const Dims& d = w.dims;
  if (w.problem.model.moe.moe_latent_size == 0) return;
  w.save("latent tokens in and out", 4 * d.expert_width * d.n, kMoeBlock, 0, "4 z n");
}

}  // namespace

double LayerMemory::stored(std::uint16_t recompute) const {
  double sum = 0;
  for (const SavedTensor& t : saved) {
    if ((t.dropped_by & recompute) == 0) sum += t.bytes;
  }
  return sum;
}

double LayerMemory::captured(std::uint16_t recompute, std::uint8_t modules) const {
  double sum = 0;
  for (const SavedTensor& t : saved) {
    if ((t.dropped_by & recompute) == 0 && (t.captured_by & modules) != 0) sum += t.bytes;
  }
  return sum;
}

/// The whole MoE block returns with its input's gradient; outputs that were discarded return beside
/// their copies.
double LayerMemory::rebuilt(std::uint16_t recompute) const {
  double sum = 0;
  if ((recompute & kMoeBlock) != 0 && leftover > 0) sum += stored(0) - stored(kMoeBlock) + input;
  if ((recompute & mask(RecomputeModule::moe_act)) != 0) sum += refill_moe_act;
  if ((recompute & mask(RecomputeModule::layernorm)) != 0) sum += refill_norms;
  return sum;
}

double LayerMemory::offloadable(std::uint16_t recompute, std::uint16_t offload) const {
  double sum = 0;
  for (const SavedTensor& t : saved) {
    const bool large = t.bytes >= 2.0 * 1024 * 1024;  // min_offloaded_tensor_size: 1 Mi elements
    if (large && (t.dropped_by & recompute) == 0 && (t.offloaded_by & offload) != 0) sum += t.bytes;
  }
  return sum;
}

LayerMemory layer_memory(const Problem& p, const ShardKey& k, const LayerKind& layer) {
  SavedWriter w(p, k);
  const Dims& d = w.dims;
  w.memory.input = 2 * d.h * d.n;
  w.memory.backward.consider(2 * d.h * d.n + 2 * d.h * d.N, "attention backward: dY + 2hN");
  save_mixer(w, p.model.mixers[layer.mixer]);
  if (!p.features.transformer_engine) w.memory.refill_norms = 4 * d.h * d.n + 4 * d.n;
  if (layer.ffn == FfnKind::dense) save_dense_mlp(w);
  if (layer.ffn == FfnKind::moe) {
    w.captured_by = mask(GraphModule::moe_router) | mask(GraphModule::moe);
    save_mlp_norm(w, mask(RecomputeModule::layernorm), true);
    w.memory.leftover = 4 * d.h * d.n;
    save_router(w);
    w.captured_by = mask(GraphModule::moe);
    save_latent(w);
    save_experts(w);
    save_combine(w);
    save_shared(w);
  }
  if (p.model.hyper_connections > 1) {
    // every block keeps the other residual streams and the mixed input
    w.save("hyper-connection streams", 2.0 * p.model.hyper_connections * 2 * d.h * d.n,
           mask(RecomputeModule::mhc), 0, "4 hc hn");
  }
  return std::move(w.memory);
}

HeadMemory head_memory(const Problem& p, const ShardKey& k) {
  const Dims d = make_dims(p, k);
  HeadMemory m;
  m.stored = 4 * d.h * d.n;
  const double logits = d.N * d.vocab;
  // TE's cross entropy writes the gradient into the logits and keeps them; Megatron's keeps an fp32
  // softmax
  m.mtp = p.features.te_cross_entropy ? 2 * logits + 12 * d.N : 4 * logits;
  if (p.features.te_cross_entropy) {
    m.loss = 2 * logits + 12 * d.N;
    m.loss_formula = "TE cross entropy: 2N V / t + 12N";
    m.out_layer = 2 * logits + 2 * d.h * d.N + (k.sequence_parallel ? 2 * d.h * d.n : 0);
    m.out_layer_formula = "2N V / t + 2hN (+ 2hn with SP)";
  } else {
    // compiled whole: bf16 logits, fp32 logits, fp32 exponentials (10.0 bytes per token and word
    // recorded on an H200, bench/memory_probe); eager works in place
    const bool eager = p.features.unfused_kernels;
    m.loss = (eager ? 6 : 10) * logits;
    m.loss_formula =
        eager ? "eager cross entropy: 6 N V / t" : "compiled cross entropy: 10 N V / t";
    m.out_layer = 2 * logits + 2 * d.h * d.N + 2 * d.h * d.vocab;
    m.out_layer_formula = "2N V / t + 2hN + 2h V / t";
  }
  return m;
}

}  // namespace moecast
