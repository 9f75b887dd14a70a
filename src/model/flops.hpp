#pragma once
/// Megatron-Bridge's model FLOPs, one formula family per file. Everything here is "FLOPs per token,
/// forward + backward" of one layer's part: 6 per weight element (FMA, forward 1 + backward 2),
/// attention with the causal half applied, no recompute. Ref: Megatron-Bridge
/// src/megatron/bridge/training/utils/flop_utils.py (067f987).
#include "moecast/model_spec.hpp"

namespace moecast {

double gqa_flops(const ModelSpec& m, const Mixer& mixer, int seq_length);
double mla_flops(const ModelSpec& m, const Mixer& mixer, int seq_length);
double csa_flops(const ModelSpec& m, const Mixer& mixer, int seq_length);
double gdn_flops(const ModelSpec& m, const Mixer& mixer);
double kda_flops(const ModelSpec& m, const Mixer& mixer);
double mamba_flops(const ModelSpec& m, const Mixer& mixer);

double mixer_flops(const ModelSpec& m, const Mixer& mixer, int seq_length);
double ffn_flops(const ModelSpec& m, FfnKind kind);

/// Tokens a query attends to on average: s/2 for full causal attention, W - W(W-1)/(2s) in a window
/// of W < s tokens.
double average_context(int window, int seq_length);

}  // namespace moecast
