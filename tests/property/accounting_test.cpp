// What adds up, whatever the layout.
#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "model/params.hpp"
#include "random_layouts.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

std::vector<std::pair<const char*, double>> parts_of(const TimeBreakdown& t) {
  return {{"compute", t.compute.value},        {"ep", t.ep_comm_exposed.value},
          {"tp", t.tp_comm_exposed.value},     {"cp", t.cp_comm_exposed.value},
          {"pp", t.pp_comm_exposed.value},     {"dp", t.dp_comm_exposed.value},
          {"bubble", t.pipeline_bubble.value}, {"host", t.host_exposed.value},
          {"optimizer", t.optimizer.value}};
}

/// Elements that every tensor parallel rank has a copy of.
double replicated(const ModelSpec& m, const LayerKind& layer) {
  const BlockParams mixer = mixer_params(m, m.mixers[layer.mixer]);
  double sum = mixer.replicated + mixer.indexer + layer_norm_params(m, layer);
  if (layer.ffn == FfnKind::dense) sum += dense_mlp_params(m).replicated;
  if (layer.ffn == FfnKind::moe)
    sum += moe_params(m).router + moe_params(m).latent + moe_params(m).shared.replicated;
  return sum;
}

struct Whole {
  double replicated = 0, indexer = 0, experts = 0;
};
Whole whole_of(const ModelSpec& m) {
  Whole w;
  const auto add = [&](const LayerKind& layer) {
    w.replicated += replicated(m, layer);
    w.indexer += mixer_params(m, m.mixers[layer.mixer]).indexer;
    if (layer.ffn == FfnKind::moe) w.experts += m.moe.num_moe_experts * moe_params(m).one_expert();
  };
  for (const LayerKind& layer : m.layers) add(layer);
  const int depths = m.mtp_use_repeated_layer ? std::min(1, m.mtp_num_layers) : m.mtp_num_layers;
  for (int d = 0; d < depths; ++d) {
    for (const LayerKind& layer : m.mtp_pattern) add(layer);
    w.replicated += mtp_extra_params(m).replicated;
  }
  w.replicated += norm_params(m);
  return w;
}

}  // namespace

TEST_CASE("the parts of the step add up to it, and none is negative") {
  LegalLayouts samples(101);
  for (int i = 0; i < 200; ++i) {
    const Sample s = samples.next();
    const Forecast f = forecast(s);
    INFO(s.words);
    double sum = 0;
    for (const auto& [name, part] : parts_of(f.estimate.time)) {
      INFO(name << " " << part << " of " << f.outcome.step);
      CHECK(part >= -1e-9 * f.outcome.step);
      sum += part;
    }
    CHECK_THAT(sum, WithinRel(f.outcome.step, 1e-9));
    CHECK(f.outcome.step == f.estimate.step_time.value);
  }
}

TEST_CASE("kernel classes add up to the compute of the step, and recomputation is a part of it") {
  LegalLayouts samples(102);
  for (int i = 0; i < 100; ++i) {
    const Sample s = samples.next();
    const TimeBreakdown t = forecast(s).estimate.time;
    INFO(s.words);
    const Seconds kernels =
        t.grouped_gemm + t.dense_gemm + t.attention + t.permute + t.memory_bound + t.quantize;
    CHECK_THAT(kernels.value, WithinRel(t.compute.value, 1e-9));
    CHECK(t.ep_comm_total >= t.ep_comm_exposed * (1 - 1e-9));
    if (s.layout.recompute_granularity == RecomputeGranularity::none) CHECK(t.recompute.value == 0);
    if (s.layout.recompute_granularity == RecomputeGranularity::full) CHECK(t.recompute.value > 0);
  }
}

TEST_CASE("without pipelining there is no bubble and no transfer between stages") {
  LegalLayouts samples(103);
  int seen = 0;
  while (seen < 60) {
    const Sample s = samples.next();
    if (s.layout.pp > 1) continue;
    ++seen;
    const Forecast f = forecast(s);
    INFO(s.words);
    CHECK(std::abs(f.estimate.time.pipeline_bubble.value) <= 1e-9 * f.outcome.step);
    CHECK(f.estimate.time.pp_comm_exposed.value == 0);
  }
}

TEST_CASE("the step is never shorter than its bound or than what one resource is busy") {
  LegalLayouts samples(104);
  for (int i = 0; i < 250; ++i) {
    const Sample s = samples.next();
    const Forecast f = forecast(s);
    const TimeBreakdown& t = f.estimate.time;
    INFO(s.words);
    CHECK(f.outcome.bound <= f.outcome.step * (1 + 1e-12));
    CHECK(f.outcome.bound > 0);
    CHECK((t.compute + t.tp_comm_exposed + t.cp_comm_exposed + t.optimizer).value <=
          f.outcome.step * (1 + 1e-9));
    CHECK(t.ep_comm_total.value <= f.outcome.step * (1 + 1e-9));
  }
}

TEST_CASE("what ranks hold, less the copies, is the model") {
  LegalLayouts samples(105);
  for (int i = 0; i < 150; ++i) {
    const Sample s = samples.next();
    const Layout& l = s.layout;
    const ModelSpec& m = s.problem.model;
    INFO(s.words);
    const MeshTables tables = [&] {
      auto made = make_mesh_tables(s.problem, l);
      REQUIRE(made.ok());
      return made.take();
    }();
    double dense = 0, expert = 0;
    const double vocabulary =
        static_cast<double>(padded_vocab_size(m, l.tp)) / l.tp * m.hidden_size;
    for (const RankParams& r : tables.params) {
      CHECK((r.embedding == 0 || r.embedding == vocabulary));
      CHECK((r.output_layer == 0 || r.output_layer == vocabulary));
      dense += r.dense - r.embedding - r.output_layer;
      expert += r.expert;
    }
    CHECK(tables.params.front().embedding == vocabulary);
    const Whole whole = whole_of(m);
    const ParamCount count = count_params(m);
    CHECK_THAT(expert * l.ep * l.etp, WithinRel(whole.experts, 1e-12));
    const double tables_of_words = m.untie_embeddings_and_output_weights ? 2 : 1;
    const double words = tables_of_words * m.vocab_size * m.hidden_size;
    const double body = count.total + count.mtp - words - whole.experts + whole.indexer;
    CHECK_THAT(l.tp * dense - (l.tp - 1) * whole.replicated, WithinRel(body, 1e-12));
  }
}

TEST_CASE("every rank's peak is the sum of its parts, and the layout fits when the largest does") {
  LegalLayouts samples(106);
  for (int i = 0; i < 150; ++i) {
    const Sample s = samples.next();
    const Forecast f = forecast(s);
    INFO(s.words);
    REQUIRE(f.estimate.ranks.size() == static_cast<std::size_t>(s.layout.pp));
    double largest = 0;
    for (const RankMemory& r : f.estimate.ranks) {
      const Bytes sum = r.weights + r.gradients + r.optimizer + r.activations + r.dispatcher +
                        r.cuda_graph + r.workspace;
      CHECK_THAT(r.peak.value, WithinRel(sum.value, 1e-12));
      CHECK(r.peak_reserved > r.peak);
      for (const Bytes part : {r.weights, r.gradients, r.optimizer, r.activations, r.dispatcher,
                               r.cuda_graph, r.workspace, r.host})
        CHECK(part.value >= 0);
      largest = std::max(largest, r.peak.value);
    }
    CHECK(f.outcome.peak == largest);
    CHECK((f.outcome.status == Outcome::Status::fits) ==
          (f.outcome.reserved <= s.problem.system().gpu.hbm_capacity.value));
  }
}
