#pragma once
/// Builds the operation lists of layers, embedding, head and MTP for one shard key.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "estimate/dims.hpp"
#include "estimate/op.hpp"

namespace moecast {

/// Spans of the groups that a layer talks over.
struct LayerSpans {
  GroupSpan tp, cp, ep, etp, etp_ep;
};
LayerSpans layer_spans(const Problem& p, const ShardKey& k);

/// Appends priced operations; backward groups are kept per module and reversed at the end.
class OpWriter {
 public:
  /// `clock` of the tensor cores, against the sustained one.
  OpWriter(const Problem& p, const ShardKey& k, double clock);

  const Problem& problem;
  const ShardKey& key;
  const Dims dims;
  const LayerSpans spans;
  const Prices prices;

  /// Starts a module: its operations carry these tags, its backward operations form one group.
  void begin(Part part, std::uint16_t recompute = 0, std::uint8_t graph = 0, bool shared = false);
  void forward(const char* name, OpClass cls, Seconds gpu, double launches, bool sync = false);
  void backward(const char* name, OpClass cls, Seconds gpu, double launches, bool wgrad = false,
                bool sync = false);

  enum class Split : unsigned char { none, column, row };
  /// A TE linear: quantise, GEMM; backward quantise, dgrad, wgrad; with the TP collectives of its
  /// kind. Full (unsplit) n and k of the model; rows = tokens the GEMM runs over.
  void linear(const char* name, double rows, double n, double k, Split split,
              bool quantised = true);
  void norm(double width, double rows);
  void elementwise(const char* name, double forward_bytes, double backward_bytes,
                   double launches = 1);
  /// SwiGLU and its like.
  void activation(const char* name, double forward_bytes, double backward_bytes,
                  double launches = 1);
  void residual();  ///< bias-dropout-add of the block
  LayerOps finish();

  [[nodiscard]] bool low_precision() const { return key.precision != Precision::bf16; }
  [[nodiscard]] double accumulate_bytes() const;
  /// Bytes read and written to quantise one element of an activation or gradient, row- and
  /// column-wise.
  [[nodiscard]] double quantize_bytes() const;

 private:
  void quantize(bool is_forward, double elements);
  void sequence_gather(bool is_forward, const char* name, double bytes, Seconds hidden_under);
  void sequence_scatter(bool is_forward, const char* name, double bytes, Seconds hidden_under);
  void tp_collective(bool is_forward, const char* name, Collective op, double bytes,
                     Seconds hidden_under);
  LayerOps ops_;
  std::vector<Op> backward_;         ///< of the modules in forward order
  std::vector<std::size_t> groups_;  ///< where each module's begin
  Op tags_;
};

void write_mixer(OpWriter& w, const Mixer& m);
void write_attention(OpWriter& w, const Mixer& m);
void write_linear_mixer(OpWriter& w, const Mixer& m);
void write_dense_mlp(OpWriter& w);
void write_moe(OpWriter& w);

/// GPU seconds of a forward and backward pass: of tensor cores, and all.
struct BusySeconds {
  double tensor = 0, all = 0;
  void add(const LayerOps& ops, double times);
};
/// What the shards of a search share: the pass without routed experts, by the knobs that act on it.
using KnownBusy = std::vector<std::pair<ShardKey, BusySeconds>>;

/// What tensor cores run at when power is what limits them: 1 + burst_gain x (1 - their share of
/// the GPU time of a forward and backward pass of the model).
double tensor_clock(const Problem& p, const ShardKey& k, KnownBusy& known);

/// One decoder layer of a class.
LayerOps layer_ops(const Problem& p, const ShardKey& k, const LayerKind& layer, double clock = 1);
/// Of every class: mixers that classes share are priced once.
std::vector<LayerOps> class_ops(const Problem& p, const ShardKey& k, double clock);
/// Word embedding (first stage).
LayerOps embedding_ops(const Problem& p, const ShardKey& k, double clock = 1);
/// Final norm, output layer and loss (last stage).
LayerOps head_ops(const Problem& p, const ShardKey& k, double clock = 1);
/// What one MTP depth adds around its layers: norms, concatenation, eh_proj (its logits and loss
/// are head_ops again).
LayerOps mtp_extra_ops(const Problem& p, const ShardKey& k, double clock = 1);

constexpr std::uint16_t mask(RecomputeModule m) {
  return static_cast<std::uint16_t>(1u << static_cast<int>(m));
}
constexpr std::uint8_t mask(GraphModule m) {
  return static_cast<std::uint8_t>(1u << static_cast<int>(m));
}

}  // namespace moecast
