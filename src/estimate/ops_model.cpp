// Whole layers, and the ends of the model: embedding, head, MTP.
#include <algorithm>
#include <iterator>

#include "estimate/layer_ops.hpp"

namespace moecast {

void write_mixer(OpWriter& w, const Mixer& m) {
  switch (m.kind) {
    case MixerKind::none:
      return;
    case MixerKind::gqa:
    case MixerKind::mla:
    case MixerKind::csa:
      return write_attention(w, m);
    case MixerKind::gdn:
    case MixerKind::kda:
    case MixerKind::mamba:
      return write_linear_mixer(w, m);
  }
}

namespace {

LayerOps with_ffn(OpWriter w, FfnKind ffn) {
  if (ffn == FfnKind::dense) write_dense_mlp(w);
  if (ffn == FfnKind::moe) write_moe(w);
  return w.finish();
}

}  // namespace

LayerOps layer_ops(const Problem& p, const ShardKey& k, const LayerKind& layer, double clock) {
  OpWriter w(p, k, clock);
  write_mixer(w, p.model.mixers[layer.mixer]);
  return with_ffn(std::move(w), layer.ffn);
}

std::vector<LayerOps> class_ops(const Problem& p, const ShardKey& k, double clock) {
  std::vector<LayerOps> all;
  all.reserve(p.classes.size());
  std::vector<std::pair<std::size_t, OpWriter>> mixers;
  mixers.reserve(p.classes.size());
  for (const LayerKind& layer : p.classes) {
    auto at = std::find_if(mixers.begin(), mixers.end(),
                           [&](const auto& m) { return m.first == layer.mixer; });
    if (at == mixers.end()) {
      OpWriter w(p, k, clock);
      write_mixer(w, p.model.mixers[layer.mixer]);
      mixers.emplace_back(layer.mixer, std::move(w));
      at = std::prev(mixers.end());
    }
    all.push_back(with_ffn(at->second, layer.ffn));
  }
  return all;
}

LayerOps embedding_ops(const Problem& p, const ShardKey& k, double clock) {
  OpWriter w(p, k, clock);
  const Dims& d = w.dims;
  const double bytes = 4 * d.N * d.h;
  w.forward("embedding", OpClass::memory_bound, w.prices.elementwise(bytes), 3);
  w.backward("embedding", OpClass::memory_bound, w.prices.elementwise(2 * bytes), 3, true);
  if (k.tp > 1) {
    const Seconds t = w.prices.collective(Collective::reduce_scatter, 2 * d.N * d.h, w.spans.tp);
    w.forward("tp reduce-scatter", OpClass::tp_comm, t,
              p.profile.calibration.host_collective_launches);
    w.backward("tp all-gather", OpClass::tp_comm, t,
               p.profile.calibration.host_collective_launches);
  }
  return w.finish();
}

LayerOps head_ops(const Problem& p, const ShardKey& k, double clock) {
  OpWriter w(p, k, clock);
  const Dims& d = w.dims;
  w.norm(d.h, d.n);
  w.linear("output layer", d.N, d.vocab * d.t, d.h, OpWriter::Split::column,
           p.features.fp8_output_proj);
  w.begin(Part::attention);
  // TE: read bf16 logits twice, write the gradient in place. Native: an fp32 copy, its exponentials
  // and the gradient on top.
  const double logits = d.N * d.vocab;
  const bool te = p.features.te_cross_entropy;
  w.forward("cross entropy", OpClass::memory_bound,
            w.prices.stream(Stream::loss, (te ? 6 : 20) * logits), te ? 5 : 15);
  w.backward("cross entropy", OpClass::memory_bound,
             w.prices.stream(Stream::loss, (te ? 4 : 12) * logits), te ? 2 : 8);
  return w.finish();
}

LayerOps mtp_extra_ops(const Problem& p, const ShardKey& k, double clock) {
  OpWriter w(p, k, clock);
  const Dims& d = w.dims;
  w.elementwise("mtp embedding", 4 * d.N * d.h, 8 * d.N * d.h, 4);
  w.norm(d.h, d.n);
  w.norm(d.h, d.n);
  w.elementwise("mtp concat", 8 * d.n * d.h, 8 * d.n * d.h, 2);
  w.linear("mtp eh_proj", d.N, d.h, 2 * d.h, OpWriter::Split::column);
  return w.finish();
}

void BusySeconds::add(const LayerOps& ops, double times) {
  for (const auto* list : {&ops.forward, &ops.backward}) {
    for (const Op& op : *list) {
      const bool tensor_cores = op.cls == OpClass::dense_gemm || op.cls == OpClass::grouped_gemm ||
                                op.cls == OpClass::attention;
      all += times * op.gpu.value;
      if (tensor_cores) tensor += times * op.gpu.value;
    }
  }
}

namespace {

double layers_of(const Problem& p, std::size_t cls) {
  return static_cast<double>(
      std::count(p.class_of_layer.begin(), p.class_of_layer.end(), static_cast<int>(cls)));
}

/// Mixers, dense layers and the head, for keys with the EP knobs at their defaults.
BusySeconds without_experts(const Problem& p, const ShardKey& k) {
  BusySeconds busy;
  for (std::size_t c = 0; c < p.classes.size(); ++c) {
    LayerKind layer = p.classes[c];
    if (layer.ffn == FfnKind::moe) layer.ffn = FfnKind::none;
    busy.add(layer_ops(p, k, layer), layers_of(p, c));
  }
  busy.add(head_ops(p, k), 1);
  return busy;
}

BusySeconds without_experts(const Problem& p, ShardKey k, KnownBusy& known) {
  const ShardKey plain;
  k.ep = k.etp = 1;
  k.dispatcher = plain.dispatcher;
  k.dispatcher_num_sms = plain.dispatcher_num_sms;
  const auto at =
      std::find_if(known.begin(), known.end(), [&](const auto& item) { return item.first == k; });
  if (at != known.end()) return at->second;
  return known.emplace_back(k, without_experts(p, k)).second;
}

}  // namespace

double tensor_clock(const Problem& p, const ShardKey& k, KnownBusy& known) {
  const double gain = p.profile.calibration.burst_gain;
  if (gain <= 0) return 1;
  BusySeconds busy = without_experts(p, k, known);
  for (std::size_t c = 0; c < p.classes.size(); ++c) {
    if (p.classes[c].ffn != FfnKind::moe) continue;
    OpWriter moe(p, k, 1);
    write_moe(moe);
    busy.add(moe.finish(), layers_of(p, c));
  }
  return 1 + gain * (1 - (busy.all > 0 ? busy.tensor / busy.all : 1));
}

}  // namespace moecast
