#include "calibrate/recorder.hpp"

#include <cmath>
#include <filesystem>

#include <fmt/format.h>

namespace moecast {
namespace {

/// Keys that were measured, not asked for: a contention sample carries both sides' slow-down.
bool is_result(const std::string& key) {
  return key.ends_with("_us") || key.ends_with("_slowdown");
}

std::string identity(const Kernel& kernel, const std::string& mode, int gpu, int run) {
  Kernel asked = kernel;
  std::erase_if(asked.keys, [](const auto& entry) { return is_result(entry.first); });
  return fmt::format("{}|{}|{}|{}|{}", describe(asked), asked.backend, mode, gpu, run);
}

}  // namespace

std::string describe(const Kernel& kernel) {
  std::string text = kernel.cls;
  for (const auto& [name, value] : kernel.keys) {
    text += ' ' + name + '=';
    std::visit([&](const auto& v) { text += fmt::format("{}", v); }, value);
  }
  return text;
}

double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::abs(value))));
  return scale >= 1 ? std::round(value * scale) / scale : std::round(value);
}

Diagnostics Recorder::resume(const SampleDevice& device) {
  const std::lock_guard lock(mutex_);
  if (!path_.empty() && std::filesystem::exists(path_)) {
    auto old = read_samples(path_);
    if (!old) return old.problems();
    if (old.value().device.name != device.name) {
      return {
          {path_, 0, 0, "device.name",
           fmt::format("holds samples of '{}', this is '{}'", old.value().device.name, device.name),
           "write to another file"}};
    }
    samples_ = old.take();
  }
  const KernelKeys more = std::move(samples_.device.more);
  samples_.device = device;
  samples_.device.more.insert(more.begin(), more.end());
  for (const Sample& s : samples_.samples)
    known_.insert(identity({s.cls, s.keys, s.backend}, s.mode, s.gpu, s.run));
  return {};
}

bool Recorder::has(const Kernel& kernel, const std::string& mode, int gpu) const {
  const std::lock_guard lock(mutex_);
  return known_.contains(identity(kernel, mode, gpu, run_));
}

void Recorder::add(const Kernel& kernel, const std::string& mode, int gpu, const Timing& timing,
                   double max_rel_error) {
  Sample s;
  s.cls = kernel.cls;
  s.keys = kernel.keys;
  s.backend = kernel.backend;
  s.mode = mode;
  s.n = timing.n;
  s.median_us = rounded(timing.median_us);
  s.min_us = rounded(timing.min_us);
  s.max_us = rounded(timing.max_us);
  s.spread_pct = std::round(timing.spread_pct * 100) / 100;
  s.sm_clock_mhz = std::round(timing.sm_clock_mhz);
  s.power_w = std::round(timing.power_w);
  s.max_rel_error = max_rel_error == 0 ? 0 : std::stod(fmt::format("{:.2g}", max_rel_error));
  s.gpu = gpu;
  s.run = run_;
  const std::lock_guard lock(mutex_);
  if (!known_.insert(identity({s.cls, s.keys, s.backend}, s.mode, s.gpu, s.run)).second) return;
  samples_.samples.push_back(std::move(s));
}

void Recorder::refuse(const Kernel& kernel) { note("refused_" + kernel.cls, 1); }

void Recorder::note(const std::string& key, double value) {
  const std::lock_guard lock(mutex_);
  auto& slot = samples_.device.more[key];
  slot = (std::holds_alternative<double>(slot) ? std::get<double>(slot) : 0.0) + value;
}

Diagnostics Recorder::save() const {
  const std::lock_guard lock(mutex_);
  return path_.empty() ? Diagnostics{} : write_samples(path_, samples_);
}

Samples Recorder::samples() const {
  const std::lock_guard lock(mutex_);
  return samples_;
}

std::vector<Sample> Recorder::of_class(const std::string& cls) const {
  const std::lock_guard lock(mutex_);
  std::vector<Sample> found;
  for (const Sample& s : samples_.samples)
    if (s.cls == cls && s.run == run_) found.push_back(s);
  return found;
}

}  // namespace moecast
