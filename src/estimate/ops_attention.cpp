// Softmax attention blocks: GQA (full and sliding), MLA (with DSA indexer), DeepSeek-V4 compressed
// attention. Shapes: Megatron core/transformer/{attention,multi_latent_attention}.py; TP
// traffic: core/tensor_parallel/layers.py.
#include <algorithm>

#include "estimate/layer_ops.hpp"

namespace moecast {
namespace {

constexpr auto kAttnGraph = mask(GraphModule::attn);

/// Sparse context of DSA: dense half when the sequence is short, else the mean of
/// min(position, topk).
double sparse_context(double s, double topk) {
  return s <= topk ? (s + 1) / 2 : topk - topk * (topk - 1) / (2 * s);
}

/// Context-parallel exchange. p2p: C-1 ring steps hide under the attention of the previous chunk;
/// all_gather and a2a are exposed.
void write_cp(OpWriter& w, double kv_bytes, double qkvo_bytes, Seconds fwd_core, Seconds bwd_core) {
  const int c = w.key.cp;
  if (c <= 1) return;
  const double launches = w.problem.profile.calibration.host_collective_launches;
  if (w.key.cp_comm_type == CpCommType::a2a || w.key.cp_comm_type == CpCommType::a2a_p2p) {
    const Seconds t = w.prices.collective(Collective::alltoall, qkvo_bytes, w.spans.cp);
    w.forward("cp all-to-all", OpClass::cp_comm, t, 4 * launches);
    w.backward("cp all-to-all", OpClass::cp_comm, t, 4 * launches);
  } else if (w.key.cp_comm_type == CpCommType::all_gather) {
    w.forward("cp all-gather", OpClass::cp_comm,
              w.prices.collective(Collective::all_gather, kv_bytes * c, w.spans.cp), launches);
    w.backward("cp reduce-scatter", OpClass::cp_comm,
               w.prices.collective(Collective::reduce_scatter, kv_bytes * c, w.spans.cp), launches);
  } else {
    const Seconds send = w.prices.collective(Collective::send_recv, kv_bytes, w.spans.cp);
    const Seconds back = w.prices.collective(Collective::send_recv, 2 * kv_bytes, w.spans.cp);
    w.forward("cp ring", OpClass::cp_comm, max(Seconds{}, send - fwd_core / c) * (c - 1),
              launches * (c - 1));
    w.backward("cp ring", OpClass::cp_comm, max(Seconds{}, back - bwd_core / c) * (c - 1),
               launches * (c - 1));
  }
}

struct Core {
  double context = 0, qk_dim = 0, v_dim = 0, kv_heads = 0;
};

void write_core(OpWriter& w, const Mixer& m, const Core& core) {
  const Dims& d = w.dims;
  const double heads = m.num_attention_heads / d.t;
  const double kv_heads = std::max(1.0, core.kv_heads / d.t);
  Prices::AttentionShape a;
  a.batch = w.key.micro_batch_size;
  a.seq_q = static_cast<double>(w.problem.seq_length) / w.key.cp;
  a.context = core.context;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.qk_dim = core.qk_dim;
  a.v_dim = core.v_dim;
  a.fp8 = w.problem.features.fp8_attention && w.low_precision();
  a.sinks = m.sinks;
  // the ring computes one key block after the other: C kernels with C-th of the context, each with
  // its own ramp, and after each the partial outputs are rescaled by their log-sum-exp (fp32
  // accumulator read and written, block output read)
  const int steps = w.key.cp > 1 && w.key.cp_comm_type == CpCommType::p2p ? w.key.cp : 1;
  a.context /= steps;
  Seconds fwd = w.prices.attention(a, false) * steps;
  Seconds bwd = w.prices.attention(a, true) * steps;
  if (steps > 1) {
    const double out = d.N * heads * core.v_dim,
                 kv_grad = d.N * kv_heads * (core.qk_dim + core.v_dim);
    fwd += w.prices.elementwise(10 * out) * (steps - 1);
    bwd += w.prices.elementwise(6 * out + 6 * kv_grad) * (steps - 1);
  }
  if (w.problem.features.unfused_attention) {
    const double scores = d.N * w.problem.seq_length * heads;
    fwd += w.prices.unfused_attention(scores, false);
    bwd += w.prices.unfused_attention(scores, true);
  }
  w.begin(Part::attention, mask(RecomputeModule::core_attn), kAttnGraph);
  const double kv = 2 * d.N * kv_heads * (core.qk_dim + core.v_dim);
  write_cp(w, kv, kv + 2 * d.N * heads * (core.qk_dim + core.v_dim), fwd, bwd);
  if (!w.problem.features.transformer_engine) {
    // PyTorch's SDPA takes [batch, heads, sequence, width]: queries, keys, values and output are
    // copied there and back
    const double copied = 8 * d.N * (heads + kv_heads) * (core.qk_dim + core.v_dim);
    w.elementwise("attention layout", copied, copied, 4);
  }
  w.forward("core attention", OpClass::attention, fwd, 3.0 * steps);
  w.backward("core attention", OpClass::attention, bwd, 3.0 * steps);
}

/// Unfused: some 20 passes each way (negate, concatenate, two products, sum, casts), counted in the
/// element-wise kernels of Megatron-Core steps on an H200: 82 bytes per element in both directions.
void write_rope(OpWriter& w, double elements) {
  const bool fused = w.problem.features.rope_fusion;
  const double bytes = fused ? 4 : 41;
  w.elementwise("rope", bytes * elements, bytes * elements, fused ? 2 : 8);
}

void write_gqa(OpWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double q = static_cast<double>(m.num_attention_heads) * m.qk_head_dim;
  const double k = static_cast<double>(m.num_query_groups) * m.qk_head_dim;
  const double v = m.k_equals_v ? 0 : static_cast<double>(m.num_query_groups) * m.v_head_dim;
  const double gate = m.attention_output_gate ? q : 0;
  w.begin(Part::attention, 0, kAttnGraph);
  w.norm(d.h, d.n);
  w.linear("qkv", d.N, q + k + v + gate, d.h, OpWriter::Split::column);
  if (m.qk_layernorm) {
    w.forward("qk norm", OpClass::memory_bound,
              w.prices.stream(Stream::norm, 4 * d.N * (q + k) / d.t), 2);
    w.backward("qk norm", OpClass::memory_bound,
               w.prices.stream(Stream::norm_backward, 6 * d.N * (q + k) / d.t), 4);
  }
  write_rope(w, d.N * (q + k) / d.t);
  const double v_dim = m.v_head_dim;
  write_core(w, m,
             {mean_context(w.problem.seq_length, m.window), static_cast<double>(m.qk_head_dim),
              v_dim, static_cast<double>(m.num_query_groups)});
  w.begin(Part::attention, 0, kAttnGraph);
  const double o = m.num_attention_heads * v_dim;
  if (gate > 0) w.elementwise("output gate", 6 * d.N * o / d.t, 10 * d.N * o / d.t, 2);
  w.linear("attention proj", d.N, d.h, o, OpWriter::Split::row);
}

void write_indexer(OpWriter& w, const Mixer& m, double candidates) {
  if (m.index_n_heads == 0 || !m.index_fresh) return;
  const Dims& d = w.dims;
  const double width = static_cast<double>(m.index_n_heads) * m.index_head_dim;
  const double input = m.q_lora_rank > 0 ? m.q_lora_rank : d.h;
  w.begin(Part::attention, 0, kAttnGraph);
  // frozen indexer: forward only
  const auto project = [&](const char* name, double n, double k) {
    w.forward(name, OpClass::dense_gemm, w.prices.gemm(Pipe::bf16, {d.n, n, k}, Pass::forward),
              w.problem.profile.calibration.host_linear_launches);
  };
  project("indexer q", width, input);
  project("indexer k", m.index_head_dim + m.index_n_heads, d.h);
  const double scores = 2 * d.N * candidates * m.index_n_heads * (m.index_head_dim + 1.0);
  const double rate = w.problem.system().gpu.bf16.value *
                      w.problem.profile.calibration.attention[0].forward_efficiency;
  w.forward("indexer scores and top-k", OpClass::attention,
            seconds(scores / rate) + w.prices.elementwise(4 * d.N * candidates), 6);
}

void write_mla(OpWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double heads = m.num_attention_heads;
  const double qk = m.qk_head_dim + m.qk_pos_emb_head_dim;
  w.begin(Part::attention, mask(RecomputeModule::layernorm), kAttnGraph);
  w.norm(d.h, d.n);
  w.begin(Part::attention, 0, kAttnGraph);
  // down projections run on the sequence shard and are not split by TP
  if (m.q_lora_rank > 0) w.linear("q down", d.n, m.q_lora_rank, d.h, OpWriter::Split::none);
  w.linear("kv down", d.n, m.kv_lora_rank + m.qk_pos_emb_head_dim, d.h, OpWriter::Split::none);
  w.begin(Part::attention, mask(RecomputeModule::mla_up_proj), kAttnGraph);
  if (m.q_lora_rank > 0) {
    w.norm(m.q_lora_rank, d.n);
    w.linear("q up", d.N, heads * qk, m.q_lora_rank, OpWriter::Split::column);
  } else {
    w.linear("q", d.N, heads * qk, d.h, OpWriter::Split::column);
  }
  w.norm(m.kv_lora_rank, d.n);
  w.linear("kv up", d.N, heads * (m.qk_head_dim + m.v_head_dim), m.kv_lora_rank,
           OpWriter::Split::column);
  write_rope(w, d.N * heads * qk * 2 / d.t);  // rope, and the copies that join nope and rope parts
  const double s = w.problem.seq_length;
  const bool sparse = m.index_topk > 0;
  write_indexer(w, m, s / 2);
  const Core dense{s / 2, qk, static_cast<double>(m.v_head_dim), heads};
  const Core absorbed{sparse_context(s, m.index_topk),
                      static_cast<double>(m.kv_lora_rank + m.qk_pos_emb_head_dim),
                      static_cast<double>(m.kv_lora_rank), 1};
  write_core(w, m, sparse ? absorbed : dense);
  w.begin(Part::attention, 0, kAttnGraph);
  w.linear("attention proj", d.N, d.h, heads * m.v_head_dim, OpWriter::Split::row);
}

/// DeepSeek-V4: one shared KV head, compressed blocks of 4 or 128 tokens beside a sliding window,
/// grouped output LoRA.
void write_csa(OpWriter& w, const Mixer& m) {
  const Dims& d = w.dims;
  const double s = w.problem.seq_length, heads = m.num_attention_heads, dv = m.v_head_dim;
  w.begin(Part::attention, mask(RecomputeModule::layernorm), kAttnGraph);
  w.norm(d.h, d.n);
  w.begin(Part::attention, 0, kAttnGraph);
  w.linear("q down", d.n, m.q_lora_rank, d.h, OpWriter::Split::none);
  w.linear("kv", d.n, dv, d.h, OpWriter::Split::none);
  if (m.compress_ratio > 0) w.linear("kv compressor", d.n, 2 * dv, d.h, OpWriter::Split::none);
  w.begin(Part::attention, mask(RecomputeModule::mla_up_proj), kAttnGraph);
  w.norm(m.q_lora_rank, d.n);
  w.linear("q up", d.N, heads * dv, m.q_lora_rank, OpWriter::Split::column);
  write_rope(w, d.N * heads * dv / d.t);
  double context = mean_context(s, m.window);
  if (m.compress_ratio == 4) {
    const double e = std::min<double>(m.index_topk, s / 4);
    context += e * (1 - 2 * e / s);
    write_indexer(w, m, s / 8);
  } else if (m.compress_ratio > 4) {
    context += s / m.compress_ratio / 2;
  }
  write_core(w, m, {context, dv, dv, 1});
  w.begin(Part::attention, 0, kAttnGraph);
  // per group heads/groups*dv -> o_lora_rank: together the FLOPs of one heads*dv -> o_lora_rank
  // GEMM
  w.linear("o down", d.N, m.o_lora_rank, heads * dv, OpWriter::Split::column);
  w.linear("o up", d.N, d.h, static_cast<double>(m.o_groups) * m.o_lora_rank, OpWriter::Split::row);
}

}  // namespace

void write_attention(OpWriter& w, const Mixer& m) {
  if (m.kind == MixerKind::gqa) write_gqa(w, m);
  if (m.kind == MixerKind::mla) write_mla(w, m);
  if (m.kind == MixerKind::csa) write_csa(w, m);
  w.begin(Part::attention, 0, kAttnGraph);
  w.residual();
}

}  // namespace moecast
