#pragma once
/// The measuring half of `moecast calibrate`: runs the kernel classes of a training step on the
/// GPUs of this node. Declared without CUDA; a build without it answers how to get it.
#include <functional>
#include <string>
#include <vector>

#include "moecast/result.hpp"
#include "moecast/samples.hpp"

namespace moecast {

struct CalibrationRequest {
  bool quick = false;             ///< fewer shapes: below 3 minutes instead of below 12
  unsigned seed = 0;              ///< not 0: random shapes instead of the grid
  std::vector<std::string> only;  ///< names of calibration_sections(); empty = all
  std::string samples_path;       ///< written after every section, read to resume; empty = neither
  int run = 1;                    ///< repeat of the whole suite that these samples belong to
};

struct CalibrationProgress {
  double fraction = 0;  ///< of the planned measurements
  double left_s = 0;
  std::string section;  ///< being measured
};
struct CalibrationSink {
  std::function<void(const CalibrationProgress&)> progress;  ///< may be empty
  std::function<void(const std::string&)> warn;  ///< a section or kernel that is left out, and why
};

/// What --only can name, with what it measures.
struct CalibrationSection {
  std::string name, what;
};
const std::vector<CalibrationSection>& calibration_sections();

/// Whether this build can measure at all.
bool has_device_code();

/// Everything measured, also after Ctrl-C (which stops after the kernel being timed). Fails without
/// device code or without a GPU: the exit code is then 3.
Result<Samples> run_calibration(const CalibrationRequest& request, const CalibrationSink& sink);

}  // namespace moecast
