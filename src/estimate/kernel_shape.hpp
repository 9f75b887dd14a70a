#pragma once
/// Every key that a kernel class can have; a class reads its own.
#include <functional>
#include <string>
#include <vector>

#include "estimate/prices.hpp"

namespace moecast {

enum class GroupedLaunch : unsigned char { multi_stream, single };

struct KernelShape {
  double m = 0, n = 0, k = 0;
  double tokens = 0, experts = 1, topk = 1, hidden = 0, skew = 1;
  double batch = 1, seq = 0, heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
  double rows = 0, cols = 0, bytes = 0, ranks = 2, sms = 0, fused = 1, accumulate = 1;
  Pipe pipe = Pipe::bf16;
  Precision precision = Precision::bf16;
  bool hopper = true;        ///< FP8 operands need a transposed copy
  double element_bytes = 2;  ///< of what streams: 4 with precision=fp32
  Pass pass = Pass::forward;
  bool backward = false;
  Dispatcher backend = Dispatcher::alltoall;
  GroupedLaunch launch = GroupedLaunch::multi_stream;
  GroupSpan span;  ///< of `ranks` neighbours
};

/// What the kernel has to do at least, for its physical limit. Communication counts bus bytes as
/// nccl-tests does.
struct KernelWork {
  double flops = 0, peak = 0;  ///< FLOP/s
  double bytes = 0, rate = 0;  ///< bytes/s
  const char* link = "HBM";    ///< what `rate` is the rate of
};

struct KernelClass {
  const char* name;
  const char* required;  ///< keys, space separated
  const char* optional;
  std::function<Seconds(const Prices&, const KernelShape&)> price;
  std::function<KernelWork(const System&, const KernelShape&)> work;
  std::function<std::string(const KernelShape&)> parameter;  ///< path of the one that matters most
  const char* counts;
};
const std::vector<KernelClass>& kernel_table();

struct KernelKey {
  const char* name;
  double KernelShape::*number;                     ///< nullptr for a word
  bool (*word)(KernelShape&, const std::string&);  ///< false: not one of the choices
  std::vector<std::string> (*choices)();
  double low = 1, high = 1e12;
};
const std::vector<KernelKey>& kernel_keys();

}  // namespace moecast
