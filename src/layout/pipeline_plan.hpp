#pragma once
/// Which layers every (pp rank, chunk) holds: Megatron's even split, its layout strings, and
/// moecast's own balance. Ref: megatron/core/transformer/pipeline_parallel_layer_layout.py,
/// transformer_block.py get_num_layers_to_build.
#include <string>
#include <vector>

#include "moecast/layout.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/result.hpp"

namespace moecast {

/// Parses Megatron's string exactly (E t m L | *n and unnested parentheses, commas dropped) and
/// validates it against the model. vpp_stated 0 = not stated (then it follows from the string).
/// Diagnostics have no file; key is the layout knob.
Result<PipelinePlan> parse_pipeline_layout(const std::string& text, const ModelSpec& model, int pp,
                                           int vpp_stated);
/// True when Megatron's even split divides: L mod pp = 0 and (L / pp) mod vpp = 0.
bool even_split_divides(const ModelSpec& model, int pp, int vpp);
PipelinePlan even_split(const ModelSpec& model, int pp, int vpp);
/// Stages that a balanced split may have beyond the decoder layers: one of the embedding alone, one
/// of the loss (and MTP) alone.
inline constexpr int kStagesWithoutLayers = 2;
/// Contiguous split into pp * vpp stages that minimises the largest stage, then the sum of squares;
/// layers weigh their model FLOPs at seq_length, the loss and the MTP layers weigh theirs.
/// Deterministic. layout_string says it in Megatron's words. Needs pp * vpp <= number of decoder
/// layers + kStagesWithoutLayers; with more stages than layers the loss, then the embedding, is
/// alone.
PipelinePlan balanced_split(const ModelSpec& model, int pp, int vpp, int seq_length);
/// What layout.pipeline_split asks for. explicit_text is read only for
/// PipelineSplit::explicit_string.
Result<PipelinePlan> plan_pipeline(const ModelSpec& model, const Layout& layout,
                                   const std::string& explicit_text, int seq_length);
/// Stages of a layout string (before validation), 0 when it cannot be expanded.
int count_layout_stages(const std::string& text);
/// First layer of every stage of the contiguous split of `weights` into `stages` non-empty parts
/// that minimises the largest part, then the sum of squares; `tail` is added to the last part. Ties
/// put fewer layers into the early stages.
std::vector<int> balanced_cuts(const std::vector<double>& weights, int stages, double tail);
/// Megatron's string of any plan, runs of equal stages folded: Et*4|(t*4|)*14tmL.
std::string to_layout_string(const PipelinePlan& plan);

}  // namespace moecast
