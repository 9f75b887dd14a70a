#include "report/import_json.hpp"

#include "layout/run_file.hpp"
#include "moecast/model_io.hpp"
#include "report/report.hpp"

namespace moecast {

Json imported_run_json(const MegatronInput& input, const ImportedRun& imported) {
  return {{"schema", "moecast/import@1"},
          {"kind", to_string(input.kind)},
          {"run", run_to_json(imported.run)},
          {"model", imported.model ? model_to_json(*imported.model) : Json()},
          {"warnings", error_json(imported.warnings).at("errors")}};
}

}  // namespace moecast
