/// Random run files: whatever they say, check answers, and what it accepts can be forecast.
#include <cmath>
#include <cstdlib>

#include "catch.hpp"
#include "estimate/legal.hpp"
#include "layout/knobs.hpp"
#include "layout/pipeline_plan.hpp"
#include "problem_of.hpp"
#include "random_layouts.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

/// A few hundred here; MOECAST_RANDOM_RUNS=100000 for the full count.
int wanted_runs() {
  const char* text = std::getenv("MOECAST_RANDOM_RUNS");
  const int n = text == nullptr ? 0 : std::atoi(text);
  return n > 0 ? n : 1500;
}

Value any_value(std::mt19937& random) {
  static const std::vector<Value> values = [] {
    std::vector<Value> all{nullptr, true, false, 0,  1,  1,   2,   2,   3,     4,
                           5,       8,    16,    61, -1, 1e9, 0.5, 1.5, "auto"};
    for (const char* word : {"none",
                             "selective",
                             "full",
                             "uniform",
                             "block",
                             "alltoall",
                             "allgather",
                             "deepep",
                             "hybridep",
                             "transformer_engine",
                             "full_iteration",
                             "local",
                             "fp32",
                             "bf16",
                             "mxfp8",
                             "fp8_tensorwise",
                             "fp8_delayed",
                             "fp8_blockwise",
                             "nvfp4",
                             "a2a",
                             "a2a+p2p",
                             "force_balance",
                             "Et*4|t*4L",
                             "Et*2|t*2|t*2|t*2L",
                             "E(t|)*7tL",
                             "Et*8mL",
                             "optim_grads_params"})
      all.emplace_back(word);
    for (const char* module : {"moe_act", "layernorm", "mlp", "moe", "core_attn", "attn",
                               "moe_router", "expert_fc1", "mla_up_proj"})
      all.push_back(Value::array({module}));
    all.push_back(Value::array({"moe_router", "moe_preprocess"}));
    return all;
  }();
  return values[random() % values.size()];
}

/// Knobs that leave model, cluster and software as they are.
const std::vector<const Knob*>& layout_knobs() {
  static const std::vector<const Knob*> list = [] {
    std::vector<const Knob*> knobs;
    for (const Knob& k : knob_table()) {
      const std::string_view s = k.section();
      if (s != "cluster" && s != "software" && k.key != "model" && k.key != "model_overrides" &&
          k.key != "moe.routing")
        knobs.push_back(&k);
    }
    return knobs;
  }();
  return list;
}

}  // namespace

TEST_CASE("Random runs never crash check, and a run that it accepts is always forecast") {
  LegalLayouts legal(2026);
  int accepted = 0;
  const int wanted = wanted_runs();
  Sample sample = legal.next();
  for (int i = 0; i < wanted; ++i) {
    if (i % 20 == 0) sample = legal.next();
    Problem p = sample.problem;
    p.run.layout = sample.layout;
    std::mt19937& random = legal.random();
    std::string words;
    for (auto changes = random() % 5; changes > 0; --changes) {
      const Knob& knob = *layout_knobs()[random() % layout_knobs().size()];
      const Value value = any_value(random);
      if (knob.set(p.run, value).empty()) words += std::string(knob.key) + "=" + value.dump() + " ";
    }
    p.seq_length = p.run.seq_length;
    p.global_batch_size = p.run.global_batch_size;
    const Layout& l = p.run.layout;
    INFO(sample.words << "\n" << words);
    bool refused = false;
    for (const Finding& f : check_layout(p, l)) refused |= f.severity == Severity::error;
    CHECK(refused == (Legality(p).first_broken(l) >= 0));
    if (refused) continue;
    ++accepted;
    const Outcome o = Evaluator(p).evaluate(l, Depth::bound);
    const bool planned =
        plan_pipeline(p.model, l, p.run.pipeline_model_parallel_layout, p.seq_length).ok();
    CHECK(planned == (o.status != Outcome::Status::no_plan));
    CHECK(planned);
    CHECK((o.status == Outcome::Status::no_plan || std::isfinite(o.bound)));
  }
  CHECK(accepted > wanted / 50);
}
