#pragma once
/// Sentences: why a layout ranks, and what would make the nearest miss fit.
#include <string>

#include "estimate/evaluate.hpp"

namespace moecast {

std::string why(const Problem& p, const Layout& l, const Estimate& detail, const Outcome& outcome);
/// The smallest change that makes the layout fit: optimizer offload, BF16 gradients, more GPUs.
std::string nearest_change(const Problem& p, const Layout& l, double headroom_gib);

}  // namespace moecast
