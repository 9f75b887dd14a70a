#pragma once
/// The values of the inner axes for a model: only what can change something in it.
#include <vector>

#include "search/space.hpp"

namespace moecast {

std::vector<RecomputeChoice> recompute_choices(const ModelSpec& m);
std::vector<GraphChoice> graph_choices(const ModelSpec& m);
std::vector<OffloadChoice> offload_choices(const Layout& base, const ModelSpec& m);

}  // namespace moecast
