#pragma once
/// Megatron's input -> a run file.
#include <array>
#include <optional>
#include <string_view>

#include "layout/megatron_input.hpp"
#include "moecast/model_spec.hpp"
#include "moecast/run.hpp"

namespace moecast {

struct ImportOptions {
  std::string model;   ///< instead of what the input describes
  std::string system;  ///< cluster.system; empty = from the input
  int gpus = 0;        ///< cluster.gpus; 0 = from the input
  std::vector<std::string> sets;
};

struct ImportedRun {
  Run run;
  std::optional<ModelSpec> model;  ///< no shipped model is the same: to be written beside the run
  Diagnostics warnings;            ///< what the run file cannot say, and what was assumed
};

/// Megatron's own mutations apply first, so that the run is what Megatron would train. Everything
/// that is missing is reported at once.
Result<ImportedRun> import_run(const MegatronInput& input, const ImportOptions& options);

/// A feature of software.features and the field that switches it.
struct FeatureField {
  std::string_view feature, field;
  std::string_view on;      ///< the field's value when it is on; empty = true
  bool lm_decides = false;  ///< a Megatron-LM command line without it has it off
};
const std::vector<FeatureField>& feature_fields();

/// Options that the run file keeps with the environment: they change time or memory and no layout.
inline constexpr std::array<std::string_view, 3> kOptionsInEnvironment = {
    "moe_expert_rank_capacity_factor", "moe_hybridep_num_blocks_permute",
    "moe_hybridep_num_blocks_unpermute"};

/// The shipped system of a GPU's name, h100 -> dgx-h100, and back; empty = none.
std::string system_of_gpu(std::string_view gpu);
std::string gpu_of_system(std::string_view system);

}  // namespace moecast
