#pragma once
/// Raw kernel timings of one node, as `moecast calibrate` records them (schema moecast/samples@1).
/// Written whole or not at all; a refit needs nothing else.
#include <string>
#include <vector>

#include "moecast/kernel.hpp"
#include "moecast/result.hpp"

namespace moecast {

struct SampleDevice {
  std::string name;
  double compute_capability = 0;
  int sms = 0, gpus = 1, nvlink_links = 0;
  double l2_mib = 0, memory_gib = 0, sm_clock_max_mhz = 0, power_limit_w = 0;
  std::string driver, cuda, cublaslt, cudnn, nccl, date;
  KernelKeys more;  ///< further facts, carried through
};

struct Sample {
  std::string cls;  ///< class of `moecast kernel`: gemm, attention, all_reduce, ...
  KernelKeys keys;
  std::string backend;             ///< library or kernel that ran
  std::string mode = "sustained";  ///< sustained | burst
  int n = 0;                       ///< timings behind the median
  double median_us = 0, min_us = 0, max_us = 0;
  double spread_pct = 0;  ///< of the repeats, against the median
  double sm_clock_mhz = 0, power_w = 0;
  double max_rel_error = 0;  ///< against the higher-precision reference
  int gpu = 0;
  int run = 1;  ///< repeat of the whole suite that it belongs to
};

struct Samples {
  SampleDevice device;
  std::vector<Sample> samples;
};

Result<Samples> read_samples(const std::string& path);
/// One sample a line. Returns what went wrong, or nothing.
Diagnostics write_samples(const std::string& path, const Samples& samples);

}  // namespace moecast
