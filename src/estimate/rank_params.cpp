#include "estimate/rank_params.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "model/params.hpp"

namespace moecast {
namespace {

/// (out, in) shapes of the linears of a part; a grouped linear counts one expert's shape.
class LinearShapes {
 public:
  void add(double out, double in) {
    if (out > 0 && in > 0) shapes.emplace_back(out, in);
  }
  std::vector<std::pair<double, double>> shapes;
};

void mixer_shapes(LinearShapes& s, const ModelSpec& model, const Mixer& m, double t) {
  const double h = model.hidden_size, heads = m.num_attention_heads;
  switch (m.kind) {
    case MixerKind::none:
      return;
    case MixerKind::gqa: {
      const double q = heads * m.qk_head_dim,
                   kv = static_cast<double>(m.num_query_groups) * (m.qk_head_dim + m.v_head_dim);
      s.add((q * (m.attention_output_gate ? 2 : 1) + kv) / t, h);
      s.add(h, heads * m.v_head_dim / t);
      return;
    }
    case MixerKind::mla: {
      const double qk = m.qk_head_dim + m.qk_pos_emb_head_dim;
      s.add(m.q_lora_rank, h);
      s.add(heads * qk / t, m.q_lora_rank > 0 ? m.q_lora_rank : h);
      s.add(m.kv_lora_rank + m.qk_pos_emb_head_dim, h);
      s.add(heads * (m.qk_head_dim + m.v_head_dim) / t, m.kv_lora_rank);
      s.add(h, heads * m.v_head_dim / t);
      return;
    }
    case MixerKind::csa:
      s.add(m.q_lora_rank, h);
      s.add(heads * m.v_head_dim / t, m.q_lora_rank);
      s.add(m.v_head_dim, h);
      s.add(h, static_cast<double>(m.o_groups) * m.o_lora_rank / t);
      return;
    case MixerKind::gdn:
    case MixerKind::kda: {
      const double qk = static_cast<double>(m.linear_num_key_heads) * m.linear_key_head_dim;
      const double v = static_cast<double>(m.linear_num_value_heads) * m.linear_value_head_dim;
      s.add((2 * qk + 2 * v + 2 * m.linear_num_value_heads) / t, h);
      s.add(h, v / t);
      return;
    }
    case MixerKind::mamba: {
      const double inner = static_cast<double>(m.mamba_num_heads) * m.mamba_head_dim;
      s.add((2 * inner + 2.0 * m.mamba_num_groups * m.mamba_state_dim + m.mamba_num_heads) / t, h);
      s.add(h, inner / t);
      return;
    }
  }
}

void layer_shapes(LinearShapes& s, const Problem& p, const Layout& l, const LayerKind& layer) {
  const ModelSpec& m = p.model;
  const double t = l.tp, h = m.hidden_size, u = m.gated_linear_unit ? 2 : 1;
  mixer_shapes(s, m, m.mixers[layer.mixer], t);
  if (layer.ffn == FfnKind::dense) {
    s.add(u * m.ffn_hidden_size / t, h);
    s.add(h, m.ffn_hidden_size / t);
  } else if (layer.ffn == FfnKind::moe) {
    const double f = static_cast<double>(m.moe.moe_ffn_hidden_size) / l.etp;
    const double hx = m.moe.moe_latent_size > 0 ? m.moe.moe_latent_size : h;
    s.add(u * f, hx);
    s.add(hx, f);
    const double sh = m.moe.moe_shared_expert_intermediate_size / t;
    s.add(u * sh, h);
    s.add(h, sh);
  }
}

}  // namespace

RankParams layer_rank_params(const Problem& p, const Layout& l, const LayerKind& layer) {
  const ModelSpec& m = p.model;
  RankParams r;
  const BlockParams mixer = mixer_params(m, m.mixers[layer.mixer]);
  r.dense_linear = mixer.on_rank(l.tp);
  r.dense = r.dense_linear + layer_norm_params(m, layer);
  if (layer.ffn == FfnKind::dense) {
    const double mlp = dense_mlp_params(m).on_rank(l.tp);
    r.dense += mlp;
    r.dense_linear += mlp;
  } else if (layer.ffn == FfnKind::moe) {
    const MoeParams moe = moe_params(m);
    const double shared = moe.shared.on_rank(l.tp);
    r.dense += moe.router + moe.latent + shared;
    r.dense_linear += moe.latent + shared;
    r.expert = static_cast<double>(m.moe.num_moe_experts) / l.ep * moe.one_expert() / l.etp;
  }
  return r;
}

ParamTables::ParamTables(const Problem& p, const Layout& l) {
  const ModelSpec& m = p.model;
  for (const LayerKind& kind : p.classes) {
    LinearShapes shapes;
    layer_shapes(shapes, p, l, kind);
    parts_.push_back({layer_rank_params(p, l, kind), std::move(shapes.shapes)});
  }
  const double h = m.hidden_size,
               extra = m.mtp_num_layers > 0 ? mtp_extra_params(m).on_rank(l.tp) : 0;
  parts_.push_back({{extra, 0, extra, 0, 0, 0}, {{h / l.tp, 2 * h}}});
  vocabulary_ = static_cast<double>(padded_vocab_size(m, l.tp)) / l.tp * h;
  parts_.push_back({{norm_params(m), 0, 0, 0, 0, 0}, {{vocabulary_ / h, h}}});
}

/// TransformerEngine caches one dummy gradient per shape for gradient accumulation fusion
/// (module/base.py get_dummy_wgrad).
double ParamTables::distinct_linears(std::uint32_t parts) const {
  const auto [at, fresh] = distinct_.try_emplace(parts, 0.0);
  if (!fresh) return at->second;
  std::set<std::pair<double, double>> shapes;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if ((parts >> i) & 1) shapes.insert(parts_[i].linears.begin(), parts_[i].linears.end());
  }
  for (const auto& [out, in] : shapes) at->second += out * in;
  return at->second;
}

RankContents rank_contents(const Problem& p, const PipelinePlan& plan, int pp_rank) {
  const ModelSpec& m = p.model;
  const int depths = m.mtp_use_repeated_layer ? std::min(1, m.mtp_num_layers) : m.mtp_num_layers;
  RankContents held;
  for (int c = 0; c < plan.vpp; ++c) {
    const Stage& stage = plan.at(pp_rank, c);
    for (const int layer : stage.layers)
      ++held.layers[static_cast<std::size_t>(p.class_of_layer[static_cast<std::size_t>(layer)])];
    if (stage.mtp) {
      held.mtp_depths += depths;
      for (const int cls : p.mtp_classes) held.layers[static_cast<std::size_t>(cls)] += depths;
    }
    held.embedding = held.embedding || stage.embedding || (stage.mtp && m.mtp_num_layers > 0);
    held.loss = held.loss || stage.loss;
  }
  return held;
}

RankParams ParamTables::rank(const Problem& p, const RankContents& held) const {
  const ModelSpec& m = p.model;
  const std::size_t mtp = p.classes.size(), loss = mtp + 1;
  RankParams r;
  std::uint32_t parts = 0;
  const auto add = [&](std::size_t part, int count) {
    if (count == 0) return;
    r.dense += count * parts_[part].params.dense;
    r.expert += count * parts_[part].params.expert;
    r.dense_linear += count * parts_[part].params.dense_linear;
    parts |= 1u << part;
  };
  for (std::size_t c = 0; c < mtp; ++c) add(c, held.layers[c]);
  add(mtp, held.mtp_depths);
  add(loss, held.loss ? 1 : 0);
  if (held.embedding) r.embedding = vocabulary_;
  // a tied output weight shares storage with the embedding of the same rank
  if (held.loss && (m.untie_embeddings_and_output_weights || !held.embedding))
    r.output_layer = vocabulary_;
  r.dense += r.embedding + r.output_layer;
  r.dummy_wgrad = p.features.transformer_engine ? distinct_linears(parts) : 0;
  return r;
}

}  // namespace moecast
