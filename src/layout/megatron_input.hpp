#pragma once
/// What users feed Megatron with, read into a MegatronConfig: Megatron-LM command lines (also
/// inside shell scripts) and YAML argument files, Megatron-Bridge overrides, and commands of
/// Bridge's performance harness. Nothing is executed.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "layout/megatron_config.hpp"
#include "moecast/layout.hpp"

namespace moecast {

enum class InputKind : std::uint8_t { megatron_lm, megatron_yaml, bridge, harness };
std::string_view to_string(InputKind kind);
/// megatron-lm, megatron-yaml, bridge, harness: what --from takes.
std::vector<std::string> input_kind_names();

/// One option as it was given.
struct GivenOption {
  std::string name;      ///< the field's
  std::string spelling;  ///< --tensor-model-parallel-size, model.tensor_model_parallel_size, -tp
  int line = 0;
};

struct MegatronInput {
  InputKind kind = InputKind::megatron_lm;
  Flavour flavour = Flavour::megatron_lm;
  std::string file;
  MegatronConfig config;                     ///< the flavour's defaults, then what was given
  std::map<std::string, GivenOption> given;  ///< by field name; the last one counts
  std::map<std::string, std::string> other;  ///< options of the model that no field holds
  std::string recipe;                        ///< of the performance harness
  int gpus = 0;                              ///< ranks that the launcher starts; 0 = not said
  std::vector<std::pair<std::string, int>> run_keys;  ///< "# moecast: key=value" lines of an export
  Diagnostics warnings;  ///< options that are not known, conditions not taken, ...

  [[nodiscard]] bool is_given(std::string_view name) const {
    return given.find(std::string(name)) != given.end();
  }
  /// A problem of a field, where the input gave it.
  [[nodiscard]] Diagnostic problem(std::string_view name, std::string message,
                                   std::string hint) const;
};

struct InputOptions {
  std::string from;                              ///< an input_kind_names(); empty = by content
  std::map<std::string, std::string> variables;  ///< what ${NAME} stands for
};

/// All problems at once: values that make no sense, and values of known options that depend on a
/// variable nobody set.
Result<MegatronInput> read_megatron_input(const std::string& path,
                                          const InputOptions& options = {});
Result<MegatronInput> read_megatron_text(std::string_view text, const std::string& file,
                                         const InputOptions& options = {});

/// True when a text is one of ours (a schema line) or a Hugging Face config: no Megatron input.
bool is_moecast_file(std::string_view text);

/// Bridge's mixed-precision recipes and the harness's --compute_dtype, per precision.
struct PrecisionNames {
  Precision precision;
  std::string_view bridge;   ///< mixed_precision=...
  std::string_view harness;  ///< -c ...; empty = none
  std::string_view format, recipe;
  bool param_gather;
};
const std::vector<PrecisionNames>& precision_names();
void set_precision(MegatronConfig& config, const PrecisionNames& names);

}  // namespace moecast
