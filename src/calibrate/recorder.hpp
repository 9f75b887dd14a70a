#pragma once
/// The samples of a calibration while it runs: what is there already, what to add, and the file
/// that keeps it. Used by one thread per GPU.
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "calibrate/timing.hpp"
#include "moecast/samples.hpp"

namespace moecast {

/// Which kernel a sample is of.
struct Kernel {
  std::string cls;
  KernelKeys keys;
  std::string backend;
};

/// "gemm m=4096 n=..."
std::string describe(const Kernel& kernel);

class Recorder {
 public:
  /// Samples of an earlier, interrupted run of the same device and `run` are kept and not measured
  /// again.
  Recorder(std::string path, int run) : path_(std::move(path)), run_(run) {}

  /// Reads the file, if there is one; fails when it is of another device.
  Diagnostics resume(const SampleDevice& device);
  [[nodiscard]] bool has(const Kernel& kernel, const std::string& mode, int gpu) const;
  void add(const Kernel& kernel, const std::string& mode, int gpu, const Timing& timing,
           double max_rel_error);
  void refuse(const Kernel& kernel);
  void note(const std::string& key, double value);
  Diagnostics save() const;
  [[nodiscard]] Samples samples() const;
  [[nodiscard]] std::vector<Sample> of_class(const std::string& cls) const;

 private:
  mutable std::mutex mutex_;
  std::string path_;
  int run_;
  Samples samples_;
  std::set<std::string> known_;
};

/// Rounded to 4 significant digits: what a timing is worth, and a third of the file.
double rounded(double value);

}  // namespace moecast
