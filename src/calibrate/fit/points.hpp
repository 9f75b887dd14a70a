#pragma once
/// Samples as the fits see them: one point per kernel, with the spread of its repeats.
#include <cstdint>
#include <vector>

#include "moecast/kernel.hpp"
#include "moecast/samples.hpp"

namespace moecast {

struct FitPoint {
  const Sample* sample;  ///< one of those behind the point
  KernelCall call;
  double measured_us = 0;  ///< median over runs and GPUs
  double repeat_pct = 0;   ///< their half-spread; of one repeat: half the spread inside it
  std::uint64_t hash = 0;  ///< of the keys: which part of the kernels it belongs to
};

/// Points of every class that has a price, from the sustained samples (burst ones where a kernel
/// has no other). Skewed groups are left out: a price is of balanced experts.
std::vector<FitPoint> fit_points(const Samples& samples, const System& system);

/// Of a dispatch or combine: our peer-to-peer kernels move what HybridEP moves (one copy per
/// destination rank), NCCL what the all-to-all dispatcher does.
Dispatcher dispatcher_of(const Sample& sample);

/// The kernel of a sample; keys that its class does not price are ignored.
Result<KernelCall> call_of(const Sample& sample, const System& system);

}  // namespace moecast
