#pragma once
/// One kernel by itself: how it is named on the command line, in rows of a CSV and in the samples
/// of a calibration, and what it costs on a system.
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "moecast/calibration.hpp"
#include "moecast/cluster.hpp"
#include "moecast/result.hpp"
#include "moecast/units.hpp"

namespace moecast {

/// Keys of a kernel as `moecast kernel` names them: numbers, and words such as precision or pass. A
/// flag is the number 0 or 1.
using KernelKeys = std::map<std::string, std::variant<double, std::string>>;

struct KernelPrice {
  Seconds time;
  double tflops = 0;             ///< 0 for classes that do not compute
  double gb_per_s = 0;           ///< HBM traffic, bus bandwidth of nccl-tests, or the copy's rate
  double fraction_of_limit = 0;  ///< the physical limit's time (peak or bandwidth) over `time`
  std::string limit;             ///< which limit that is
  std::string source;            ///< where the main parameter of the price comes from
};

/// A kernel of a known class whose keys were read, ready to be priced with any calibration of the
/// same system. Problems have no file: the caller knows it.
class KernelCall {
 public:
  struct Impl;
  static Result<KernelCall> make(const std::string& cls, const KernelKeys& keys,
                                 const System& system);
  [[nodiscard]] Seconds time(const Calibration& c, const System& system) const;
  [[nodiscard]] KernelPrice price(const Profile& profile, const System& system) const;

 private:
  explicit KernelCall(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// For help, documentation and errors.
struct KernelClassInfo {
  std::string name;
  std::vector<std::string> required, optional;
  std::string counts;  ///< what is computed or moved
};
const std::vector<KernelClassInfo>& kernel_classes();
/// Text as the command line and CSV give it: a number where it is one, else a word.
std::variant<double, std::string> key_value(const std::string& text);

}  // namespace moecast
