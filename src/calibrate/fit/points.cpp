#include "calibrate/fit/points.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "calibrate/fit/least_squares.hpp"
#include "layout/enum_names.hpp"

namespace moecast {
namespace {

std::string identity(const Sample& s) {
  std::string id = s.cls + '|' + s.backend;
  for (const auto& [name, value] : s.keys)
    std::visit([&, &key = name](const auto& v) { id += fmt::format("|{}={}", key, v); }, value);
  return id;
}

/// FNV-1a with a final mix: the same parts on every machine.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t h = 1469598103934665603ULL;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  return h ^ (h >> 33);
}

bool is_skewed(const Sample& s) {
  const auto skew = s.keys.find("skew");
  if (skew == s.keys.end()) return false;
  const auto* number = std::get_if<double>(&skew->second);
  return number == nullptr ? std::get<std::string>(skew->second) != "balanced" : *number > 1;
}

FitPoint point_of(const std::vector<const Sample*>& repeats, const KernelCall& call,
                  const std::string& id) {
  std::vector<double> times;
  for (const Sample* s : repeats) times.push_back(s->median_us);
  FitPoint p{repeats.front(), call, quantile(times, 0.5), 0, hash_of(id)};
  const auto [low, high] = std::minmax_element(times.begin(), times.end());
  p.repeat_pct =
      times.size() > 1 ? 50 * (*high - *low) / p.measured_us : repeats.front()->spread_pct / 2;
  return p;
}

}  // namespace

Dispatcher dispatcher_of(const Sample& sample) {
  if (const auto key = sample.keys.find("backend"); key != sample.keys.end()) {
    if (const auto* word = std::get_if<std::string>(&key->second))
      if (const auto known = enum_from_text<Dispatcher>(*word)) return *known;
  }
  const bool nccl = sample.backend.find("nccl") != std::string::npos;
  return nccl ? Dispatcher::alltoall : Dispatcher::hybridep;
}

Result<KernelCall> call_of(const Sample& sample, const System& system) {
  KernelKeys keys;
  for (const KernelClassInfo& info : kernel_classes()) {
    if (info.name != sample.cls) continue;
    for (const auto* names : {&info.required, &info.optional}) {
      for (const std::string& name : *names) {
        if (const auto found = sample.keys.find(name); found != sample.keys.end())
          keys.insert(*found);
      }
    }
  }
  keys.erase("skew");
  if (sample.cls == "grouped_gemm" && !keys.contains("launch")) {
    const bool multi = sample.backend.find("stream") != std::string::npos;
    keys["launch"] = std::string(multi ? "multi_stream" : "single");
  }
  if (sample.cls == "dispatch" || sample.cls == "combine")
    keys["backend"] = std::string(enum_text(dispatcher_of(sample)));
  return KernelCall::make(sample.cls, keys, system);
}

std::vector<FitPoint> fit_points(const Samples& samples, const System& system) {
  std::map<std::string, std::vector<const Sample*>> kernels;  // burst repeats only without others
  for (const bool burst : {false, true}) {
    const auto sustained = kernels;
    for (const Sample& s : samples.samples) {
      const std::string id = identity(s);
      if ((s.mode == "burst") != burst || is_skewed(s) || (burst && sustained.contains(id)))
        continue;
      kernels[id].push_back(&s);
    }
  }
  std::vector<FitPoint> points;
  for (const auto& [id, repeats] : kernels) {
    const auto call = call_of(*repeats.front(), system);
    if (call) points.push_back(point_of(repeats, call.value(), id));
  }
  return points;
}

}  // namespace moecast
