#pragma once
/// What import prints with --json.
#include "layout/megatron_import.hpp"

namespace moecast {

nlohmann::ordered_json imported_run_json(const MegatronInput& input, const ImportedRun& imported);

}  // namespace moecast
