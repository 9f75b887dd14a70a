#pragma once
/// The search space: axes of knob values, mesh axes outside, the others inside. A candidate is a
/// mesh point and an inner index.
#include <cstdint>
#include <string>
#include <vector>

#include "estimate/problem.hpp"
#include "moecast/search.hpp"

namespace moecast {

/// What an inner axis sets, in the order of the axes: dispatcher, EP overlap, graphs,
/// recomputation, offload.
struct DispatcherChoice {
  Dispatcher dispatcher = Dispatcher::alltoall;
  int num_sms = 0;
};
struct OverlapChoice {
  bool overlap = false, delay_wgrad = false, shared = false;
};
struct GraphChoice {
  CudaGraphImpl impl = CudaGraphImpl::none;
  ModuleSet<GraphModule> scope;
};
struct RecomputeChoice {
  RecomputeGranularity granularity = RecomputeGranularity::none;
  ModuleSet<RecomputeModule> modules;
  RecomputeMethod method = RecomputeMethod::none;
  int num_layers = 0;
};
struct OffloadChoice {
  ModuleSet<OffloadModule> modules;
  double optimizer_fraction = 0;
};

struct Space {
  /// A mesh axis: its knob, and how many values it has. The first axis is the slowest.
  struct Axis {
    std::string key;
    std::size_t size = 1;
    bool pipeline = false;  ///< PP or VPP: no table of a layer reads it
    int Layout::*field = nullptr;
    std::vector<int> values;  ///< of the field
    Axis(std::string name, std::size_t count);
    Axis(std::string name, int Layout::*sets, std::vector<int> to);
  };
  std::vector<Axis> axes;
  std::vector<Layout> bases;  ///< product of the axes without a field, inner knobs neutral
  /// Product of the mesh axes (and of --vary on other knobs).
  [[nodiscard]] std::size_t meshes() const;
  [[nodiscard]] Layout mesh(std::size_t number) const;
  std::vector<DispatcherChoice> dispatchers;
  std::vector<OverlapChoice> overlaps;
  std::vector<GraphChoice> graphs;
  std::vector<RecomputeChoice> recomputes;  ///< from least to most
  std::vector<OffloadChoice> offloads;      ///< the first is what the base asks for
  [[nodiscard]] std::uint64_t inner_size() const {
    return std::uint64_t{1} * dispatchers.size() * overlaps.size() * graphs.size() *
           recomputes.size() * offloads.size();
  }
};

/// Axes for a model on a cluster; --fix and --vary replace them. Problems name the knob.
Result<Space> make_space(const SearchRequest& request, const Problem& problem);

/// One candidate's layout.
struct InnerIndex {
  std::uint16_t dispatcher = 0, overlap = 0, graph = 0, recompute = 0, offload = 0;
};
/// Meshes with equal numbers differ in PP and VPP only: they share layer tables.
std::uint64_t shard_group(const Space& space, std::uint32_t mesh);
/// `mesh`: one of the space's.
Layout candidate(const Space& space, Layout mesh, const InnerIndex& inner);
inline Layout candidate(const Space& space, std::size_t mesh, const InnerIndex& inner) {
  return candidate(space, space.mesh(mesh), inner);
}
/// The choices that leave the least memory: of any choice, one of these keeps no more (sets that no
/// other set of the same kind contains; recomputing the whole MoE block is a kind of its own, as it
/// has a transient).
std::vector<std::size_t> leanest(const std::vector<RecomputeChoice>& choices);
/// True when choice b does everything that a does, and more.
bool recomputes_more(const RecomputeChoice& b, const RecomputeChoice& a);

}  // namespace moecast
