// The scan against asking candidate by candidate: what it counts, and what it says without looking.
#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "catch.hpp"
#include "random_layouts.hpp"
#include "search/enumerate.hpp"
#include "search/inner_rules.hpp"
#include "small_problems.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

/// What enumerate() says, one candidate after the other, with nothing but the rules and the
/// evaluator.
class SlowScan {
 public:
  SlowScan(const SmallProblem& s, const Space& space)
      : s_(s),
        space_(space),
        evaluator_(s.problem),
        legality_(s.problem),
        rules_(space, legality_) {}

  void mesh(std::uint32_t mesh) {
    if (rules_.refusing_mesh(mesh) >= 0) return;
    rules_.enter(mesh);
    mesh_ = mesh;
    bool fits = false;
    for (std::size_t offload = 0; offload < space_.offloads.size() && !fits; ++offload)
      fits = every_choice(static_cast<std::uint16_t>(offload));
  }

  std::uint64_t fit = 0;
  std::map<std::string, double> reserved;  ///< by place

 private:
  bool every_choice(std::uint16_t offload) {
    bool any = false;
    InnerIndex i;
    i.offload = offload;
    for (i.dispatcher = 0; i.dispatcher < space_.dispatchers.size(); ++i.dispatcher) {
      for (i.overlap = 0; i.overlap < space_.overlaps.size(); ++i.overlap)
        for (i.graph = 0; i.graph < space_.graphs.size(); ++i.graph) any = recomputes(i) || any;
    }
    return any;
  }

  bool recomputes(InnerIndex i) {
    std::vector<std::size_t> fitting;
    for (std::size_t r = 0; r < space_.recomputes.size(); ++r) {
      i.recompute = static_cast<std::uint16_t>(r);
      bool pointless = false;
      for (const std::size_t less : fitting)
        pointless = pointless || recomputes_more(space_.recomputes[r], space_.recomputes[less]);
      if (pointless || rules_.refusing(i) >= 0) continue;
      const Outcome o = evaluator_.evaluate(candidate(space_, mesh_, i), Depth::bound);
      if (o.status == Outcome::Status::no_plan ||
          o.reserved + s_.request.min_headroom_gib * kBytesPerGib >
              s_.problem.system().gpu.hbm_capacity.value)
        continue;
      fitting.push_back(r);
      ++fit;
      reserved[words(mesh_, i)] = o.reserved;
    }
    return !fitting.empty();
  }

 public:
  static std::string words(std::uint32_t mesh, const InnerIndex& i) {
    std::string text = std::to_string(mesh);
    for (const int index : {i.offload, i.dispatcher, i.overlap, i.graph, i.recompute})
      text += ' ' + std::to_string(index);
    return text;
  }

 private:
  const SmallProblem& s_;
  const Space& space_;
  Evaluator evaluator_;
  Legality legality_;
  InnerRules rules_;
  std::uint32_t mesh_ = 0;
};

/// A random legal layout with its tables.
struct Remembered {
  explicit Remembered(LegalLayouts& samples) : sample(samples.next()) {}
  Sample sample;
  ShardTables shard = make_shard_memory(sample.problem, shard_key(sample.layout));
  MeshTables mesh = must(make_mesh_tables(sample.problem, sample.layout));
  LayoutMemory memory{sample.problem, sample.layout, shard, mesh};
};

}  // namespace

TEST_CASE("does a scan find what asking one by one finds, with the same bytes?") {
  SmallProblems problems(406);
  int fitting = 0, tight = 0;
  for (int i = 0; i < 60; ++i) {
    const SmallProblem s = problems.next(true);
    const Space space = must(make_space(s.request, s.problem));
    const Enumeration all = enumerate(s.request, s.problem, space, 1);
    SlowScan slow(s, space);
    for (std::uint32_t mesh = 0; mesh < space.meshes(); ++mesh) slow.mesh(mesh);
    INFO(s.words);
    REQUIRE(all.fit == slow.fit);
    REQUIRE(all.survivors.size() == slow.fit);
    for (const Survivor& c : all.survivors) {
      const auto known = slow.reserved.find(SlowScan::words(c.mesh, c.inner));
      REQUIRE(known != slow.reserved.end());
      REQUIRE(known->second == c.reserved);
    }
    fitting += slow.fit > 0 ? 1 : 0;
    tight += slow.fit > 0 && all.legal > slow.fit ? 1 : 0;
  }
  CHECK(fitting > 20);
  CHECK(tight > 4);
}

TEST_CASE("is every candidate counted once, under what is said of it first?") {
  SmallProblems problems(407);
  for (int i = 0; i < 100; ++i) {
    const SmallProblem s = problems.next(false);
    const Space space = must(make_space(s.request, s.problem));
    const Enumeration all = enumerate(s.request, s.problem, space, 1);
    std::uint64_t rejected = 0;
    for (const auto& [reason, count] : all.rejected) rejected += count;
    INFO(s.words);
    REQUIRE(rejected + all.fit == all.candidates);
    REQUIRE(all.evaluated == all.legal);
  }
}

TEST_CASE("do the tables of rules say of a mesh of a large search what the rules say?") {
  for (const char* model : {"deepseek-v3", "qwen3-235b-a22b", "llama3-70b"}) {
    SearchRequest request;
    request.base = run_of(model, "gb200-nvl72", 1024);
    request.precisions = {Precision::bf16, Precision::fp8_tensorwise, Precision::fp8_blockwise,
                          Precision::mxfp8, Precision::nvfp4};
    request.vary = {{"layout.microbatch_group_size_per_vp_stage", {"2", "4"}}};
    const Problem p = problem_of(request.base);
    const Space space = must(make_space(request, p));
    Legality legality(p);
    InnerRules rules(space, legality);
    std::mt19937 random(408);
    const auto any = [&](std::size_t below) {
      return std::uniform_int_distribution<std::size_t>(0, below - 1)(random);
    };
    int legal = 0;
    for (int i = 0; i < 20000; ++i) {
      const std::size_t mesh = any(space.meshes());
      const int refusing = rules.refusing_mesh(mesh);
      INFO(model << ", mesh " << mesh);
      if (refusing >= 0) {
        const RuleInput& input = legality.input(space.mesh(mesh));
        REQUIRE(rule_table()[static_cast<std::size_t>(refusing)].broken(input));
        REQUIRE(first_broken_rule(input) <= refusing);
        continue;
      }
      rules.enter(mesh);
      InnerIndex inner;
      inner.dispatcher = static_cast<std::uint16_t>(any(space.dispatchers.size()));
      inner.overlap = static_cast<std::uint16_t>(any(space.overlaps.size()));
      inner.recompute = static_cast<std::uint16_t>(any(space.recomputes.size()));
      const bool said = rules.refusing(inner) < 0;
      REQUIRE(said == (legality.first_broken(candidate(space, mesh, inner)) < 0));
      legal += said ? 1 : 0;
    }
    CHECK(legal > 50);
  }
}

TEST_CASE("the least that a rank allocates is never above what it allocates") {
  LegalLayouts samples(408);
  int close = 0;
  for (int i = 0; i < 300; ++i) {
    const Remembered r(samples);
    const auto& [s, shard, mesh, memory] = r;
    if (!memory.alike()) continue;
    LayoutMemory::Sets sets;  // this one twice
    for (std::size_t c = 0; c < shard.classes.size(); ++c) {
      sets.kept.insert(sets.kept.end(), 2, memory.kept_of(c));
      sets.backward.insert(sets.backward.end(), 2, memory.backward_of(c));
    }
    for (int rank = 0; rank < s.layout.pp; ++rank) {
      std::vector<double> least(2);
      memory.least_allocated(rank, sets, least);
      const RankActivations a = memory.activations(rank);
      const double all = allocated(a, {}, 0);
      INFO(s.words << ", rank " << rank);
      REQUIRE(least[0] == least[1]);
      REQUIRE(least[0] <= all);
      close += least[0] > 0.99 * all ? 1 : 0;
    }
  }
  CHECK(close > 100);
}

TEST_CASE("do graph pools pin what the fullest vector of microbatches has captured?") {
  LegalLayouts samples(409);
  int pinning = 0;
  for (int i = 0; i < 300; ++i) {
    const Remembered r(samples);
    const auto& [s, shard, mesh, memory] = r;
    if (!memory.alike()) continue;
    const Layout& l = s.layout;
    const Pipeline& pipeline = *mesh.pipeline;
    const Alive& alive =
        l.overlap_moe_expert_parallel_comm ? pipeline.alive_overlap : pipeline.alive;
    constexpr std::uint8_t kModules = mask(GraphModule::attn) | mask(GraphModule::moe_router);
    for (int rank = 0; rank < l.pp; ++rank) {
      double most = 0;
      for (std::size_t v = 0; v < alive.size(rank); ++v) {  // chunk by chunk
        double all = 0, captured = 0;
        for (int c = 0; c < l.vpp; ++c) {
          const StageCounts& stage = mesh.stages()[static_cast<std::size_t>(rank * l.vpp + c)];
          const int count = alive.vector(rank, v)[c];
          all += count * stage.mtp_depths * 12 * shard.dims.h * shard.dims.n;
          for (std::size_t k = 0; k < stage.layers.size(); ++k) {
            const LayerMemory& layer = shard.classes[k].memory;
            all += count * stage.layers[k] * memory.kept_of(k);
            captured += count * stage.layers[k] * layer.captured(selective_modules(l), kModules);
          }
        }
        most = std::max(most, std::min(all, captured));
      }
      INFO(s.words << ", rank " << rank);
      REQUIRE_THAT(memory.pinned_by_graphs(rank, kModules), WithinRel(most, 1e-12));
      pinning += most > 0 ? 1 : 0;
    }
  }
  CHECK(pinning > 100);
}
