#pragma once
/// The parts of an import: each reads a group of Megatron's options into the run.
#include "layout/megatron_import.hpp"

namespace moecast {

/// What the parts share.
struct ImportState {
  const MegatronInput& in;
  std::optional<ModelSpec> model;  ///< that the options describe
  int layers = 0;                  ///< 0 = not known
  bool routing_said = false;       ///< by a line or --set that comes last
  ImportedRun out;
  Diagnostics problems;

  /// About an option that the input gave, or did not.
  void warn(std::string_view field, std::string message, std::string hint = "");
  void fail(std::string key, std::string message, std::string hint);
};

void import_layout(ImportState& state);    ///< sizes, split, precision, experts
void import_training(ImportState& state);  ///< recompute, offload, graphs, optimizer, software

/// Access to the state under short names.
class ImportPart {
 protected:
  explicit ImportPart(ImportState& state)
      : state_(state),
        in_(state.in),
        c_(state.in.config),
        lm_(state.in.flavour == Flavour::megatron_lm) {}
  Run& run() { return state_.out.run; }
  Layout& layout() { return state_.out.run.layout; }
  void warn(std::string_view field, std::string message, std::string hint = "") {
    state_.warn(field, std::move(message), std::move(hint));
  }

  ImportState& state_;
  const MegatronInput& in_;
  const MegatronConfig& c_;
  const bool lm_;
};

}  // namespace moecast
