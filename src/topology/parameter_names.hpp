#pragma once
/// How parameters name pipes, head widths and collectives, in the order of their enums.
#include "moecast/calibration.hpp"

namespace moecast {

inline constexpr const char* kPipeNames[] = {"bf16", "fp8", "fp8_blockwise", "mxfp8", "nvfp4"};
inline constexpr const char* kHeadNames[] = {"d64", "d128", "d192", "d256"};
inline constexpr const char* kCollectiveNames[] = {"all_reduce", "all_gather", "reduce_scatter",
                                                   "alltoall", "send_recv"};
static_assert(std::size(kPipeNames) == static_cast<std::size_t>(Pipe::count));
static_assert(std::size(kHeadNames) == static_cast<std::size_t>(HeadClass::count));
static_assert(std::size(kCollectiveNames) == static_cast<std::size_t>(Collective::count));

}  // namespace moecast
