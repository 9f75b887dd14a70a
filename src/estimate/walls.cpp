#include "estimate/walls.hpp"

namespace moecast {
namespace {

double step_with(const Problem& p, const Layout& l, const Ablation& ablation) {
  Problem free = p;
  free.ablation = ablation;
  Evaluator e(free);
  return e.evaluate(l, Depth::exact).step;
}

Layout without_memory_measures(Layout l) {
  l.recompute_granularity = RecomputeGranularity::none;
  l.recompute_method = RecomputeMethod::none;
  l.recompute_num_layers = 0;
  l.recompute_modules = {};
  l.offload_modules = {};
  l.cpu_offloading_num_layers = 0;
  l.optimizer_offload_fraction = 0;
  return l;
}

}  // namespace

std::string to_string(Wall w) {
  switch (w) {
    case Wall::memory:
      return "memory";
    case Wall::communication:
      return "communication";
    case Wall::host:
      return "host";
    case Wall::compute:
      return "compute";
  }
  return "";
}

WallVerdict find_wall(const Problem& p, const Layout& l, const Outcome& outcome) {
  const auto saved = [&](double step) { return seconds(std::max(0.0, outcome.step - step)); };
  const std::pair<Wall, Seconds> gains[] = {
      {Wall::compute, saved(step_with(p, l, {0, 1, 1}))},
      {Wall::communication, saved(step_with(p, l, {1, 0, 1}))},
      {Wall::host, saved(step_with(p, l, {1, 1, 0}))},
      {Wall::memory, saved(step_with(p, without_memory_measures(l), {}))},
  };
  WallVerdict v;
  Seconds best;
  for (const auto& [wall, gain] : gains) {
    v.saved.emplace_back(to_string(wall), gain);
    if (gain > best) {
      best = gain;
      v.wall = wall;
    }
  }
  if (outcome.status == Outcome::Status::does_not_fit) v.wall = Wall::memory;
  return v;
}

}  // namespace moecast
