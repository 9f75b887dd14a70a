#pragma once
/// How the words of a measured row (columns of measurements.csv) become a run. Everything that
/// cannot be said in a run, and every assumption about an empty cell, is a note of the row; what
/// makes a forecast impossible is collected in `missing`.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moecast/model_spec.hpp"
#include "moecast/validation.hpp"

namespace moecast::rows {

/// A cell without surrounding blanks; empty when the file has no such column.
std::string cell(const MeasuredRow& row, const std::string& column);
/// True when the file has the column: an empty cell is then "unknown", while a column that is
/// absent means the default.
bool has_column(const MeasuredRow& row, const std::string& column);
/// The whole text as a finite number.
std::optional<double> number(std::string_view text);
std::optional<int> positive_integer(std::string_view text);
std::string trimmed(std::string_view text);
std::vector<std::string> split(std::string_view text,
                               char separator);  ///< trimmed, empty parts dropped

// One function per group of columns; each writes into `run` and adds notes to `row`.
void read_precision(MeasuredRow& row, Run& run, std::vector<std::string>& missing);
void read_recompute(MeasuredRow& row, Run& run);
void read_offload(MeasuredRow& row, Run& run);
void read_cuda_graph(MeasuredRow& row, Run& run);
void read_fsdp(MeasuredRow& row, Run& run);
void read_optimizer(MeasuredRow& row, Run& run);
/// Releases of Megatron-Bridge.
bool bridge_release(const std::string& release);
/// `known` are the features that stack files name.
void read_features(MeasuredRow& row, Run& run, const std::map<std::string, bool>& known);
/// In an A/B group where a row states expandable segments, the others ran without.
void read_allocator_groups(std::vector<MeasuredRow>& rows);
void read_routing(MeasuredRow& row, Run& run);

/// Megatron's split when embedding and loss count as slots: (layers + embedding + loss) / (pp vpp)
/// each, less one layer on the first and last stage. Empty when that does not divide. Ref:
/// megatron/core/transformer/transformer_block.py get_num_layers_to_build.
std::string slot_layout(const ModelSpec& model, int pp, int vpp, bool embedding, bool loss);

/// model_overrides, layers_override and mtp_layers as HF keys; the model with them, or nothing and
/// a reason in `missing`.
std::optional<ModelSpec> read_model(MeasuredRow& row, Run& run, std::vector<std::string>& missing);
void read_pipeline(MeasuredRow& row, Run& run, const ModelSpec& model);

/// Fills empty cells of a pre-training row with what the recipe of its release and model states.
void complete_from_recipe(MeasuredRow& row);

/// Sets row.run, or row.unsupported. Relative paths in the row are taken from base_dir first.
void express(MeasuredRow& row, const std::string& base_dir);

}  // namespace moecast::rows
