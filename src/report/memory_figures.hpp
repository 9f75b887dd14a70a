#pragma once
/// The memory figures that a measured row states: which forecast each is held against.
#include <nlohmann/json.hpp>

#include "moecast/validation.hpp"

namespace moecast {

/// Reads at_rest_gib, reserved_gib and params_rank from columns, or from notes ("at rest 52.3 GiB",
/// "reserved 65.9 GiB", "params on rank 0 3114814464").
void read_memory_figures(MeasuredRow& row);

/// The forecast of what peak_mem_gib says: allocated on the largest rank, unless mem_basis names
/// rank 0 or reserved memory, or the row says that the figure is the peak of step 1. Bridge prints
/// its figure after iteration 2, before per-layer graphs are captured.
double predicted_peak_gib(const MeasuredRow& row, const Estimate& estimate);

/// Fills the predicted memory figures and their errors.
void compare_memory(const MeasuredRow& row, const Estimate& estimate, ValidatedRow& out);

/// Rows of a source where another says that its figure was read after step 1, and which say nothing
/// of the kind themselves, were read so too.
void read_first_step_sources(std::vector<MeasuredRow>& rows);

/// Where a log does not say which pipeline stage printed its figure: the nearest stage. Rows of an
/// A/B group are held to the error of the group's first, so that a pair is judged by its
/// difference.
void choose_stages(const std::vector<MeasuredRow>& rows, std::vector<ValidatedRow>& validated);

/// Errors of the peaks that were forecast, of at-rest and reserved memory and of parameters per
/// rank; runs that ran and are forecast to fit; one-knob changes of peak memory (right within 3 GiB
/// or 30 %).
nlohmann::ordered_json memory_summary(const std::vector<MeasuredRow>& rows,
                                      const std::vector<ValidatedRow>& validated);

}  // namespace moecast
