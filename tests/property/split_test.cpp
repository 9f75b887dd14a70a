// The improved split of layers against its brute-force twin: every way to cut a small model.
#include "search/split.hpp"

#include <algorithm>
#include <functional>

#include "catch.hpp"
#include "estimate/legal.hpp"
#include "layout/pipeline_plan.hpp"
#include "problem_of.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

struct Case {
  const char* model;
  const char* system;
  int gpus, layers, pp, vpp;
  bool overlap;
};

Problem small_problem(const Case& c, Layout& l) {
  l.pp = c.pp;
  l.vpp = c.vpp;
  l.ep = 2;
  l.overlap_moe_expert_parallel_comm = c.overlap;
  Run run = run_of(c.model, c.system, c.gpus, l);
  run.model_overrides["num_hidden_layers"] = c.layers;
  Problem p = problem_of(run);
  if (p.model.moe.num_moe_experts == 0) l.ep = 1;
  return p;
}

/// Calls f(string) for every way to lay the layers on the stages, empty stages too.
void every_split(const Case& c, int mtp_layers, const std::function<void(const std::string&)>& f) {
  const int stages = c.pp * c.vpp;
  std::vector<int> held(static_cast<std::size_t>(stages), 0);
  const std::function<void(int, int)> fill = [&](int stage, int left) {
    if (stage + 1 < stages) {
      for (int n = 0; n <= left; ++n) {
        held[static_cast<std::size_t>(stage)] = n;
        fill(stage + 1, left - n);
      }
      return;
    }
    held[static_cast<std::size_t>(stage)] = left;
    for (int mtp = stages - 1; mtp >= (mtp_layers > 0 ? c.pp * (c.vpp - 1) : stages - 1); --mtp) {
      std::string text = "E";
      for (int i = 0; i < stages; ++i) {
        text += std::string(static_cast<std::size_t>(held[static_cast<std::size_t>(i)]), 't');
        if (i == mtp) text += std::string(static_cast<std::size_t>(mtp_layers), 'm');
        text += i + 1 < stages ? "|" : "L";
      }
      f(text);
    }
  };
  fill(0, c.layers);
}

struct Answer {
  double step = 0;
  std::string text;
};

/// The fastest legal split that reserves at most `room`.
Answer brute_force(const Case& c, const Problem& p, const Layout& l, double room) {
  Answer best;
  Evaluator e(p);
  every_split(c, p.model.mtp_num_layers, [&](const std::string& text) {
    const auto plan = parse_pipeline_layout(text, p.model, c.pp, c.vpp);
    if (!plan) return;
    const Outcome o = e.evaluate(l, plan.value());
    if (o.reserved > room || (best.step > 0 && o.step >= best.step)) return;
    Problem own = p;
    own.run.pipeline_model_parallel_layout = text;
    Layout explicit_split = l;
    explicit_split.pipeline_split = PipelineSplit::explicit_string;
    if (Legality(own).first_broken(explicit_split) < 0) best = {o.step, text};
  });
  return best;
}

}  // namespace

TEST_CASE("is a split as fast as the fastest of all ways to cut a small model?") {
  const std::vector<Case> cases{{"deepseek-v3", "gb200-nvl72", 16, 6, 2, 1, false},
                                {"deepseek-v3", "gb200-nvl72", 16, 7, 2, 2, false},
                                {"deepseek-v3", "gb200-nvl72", 16, 7, 2, 2, true},
                                {"deepseek-v3", "dgx-h100", 16, 7, 4, 1, false},
                                {"deepseek-v3", "dgx-h100", 16, 9, 2, 3, false},
                                {"qwen3-30b-a3b", "dgx-h100", 16, 8, 4, 1, false},
                                {"qwen3-30b-a3b", "dgx-h100", 16, 8, 2, 2, true},
                                {"nemotron-3-nano-30b-a3b", "dgx-b200", 16, 10, 2, 2, false},
                                {"llama3-8b", "dgx-b200", 16, 8, 4, 1, false},
                                {"llama3-8b", "dgx-h100", 16, 8, 2, 2, false},
                                {"llama3-8b", "dgx-b200", 16, 6, 4, 2, false},
                                {"deepseek-v3", "gb200-nvl72", 16, 7, 4, 2, false}};
  int improved = 0;
  for (const Case& c : cases) {
    Layout l;
    const Problem p = small_problem(c, l);
    INFO(c.model << " on " << c.system << ", " << c.layers << " layers, PP " << c.pp << ", VPP "
                 << c.vpp << (c.overlap ? ", EP overlap" : ""));
    const Outcome automatic = Evaluator(p).evaluate(l, Depth::exact);
    REQUIRE(automatic.step > 0);
    for (const double share : {10.0, 1.0, 0.97}) {  // the last makes the automatic split too large
      const double room = share * automatic.reserved;
      const Answer best = brute_force(c, p, l, room);
      const auto found = better_split(p, l, automatic, room, 1000);
      if (best.step == 0) {
        CHECK(!found);
        continue;
      }
      INFO("best " << best.text << ", room " << share);
      INFO("found " << (found ? found->layout : "nothing"));
      if (automatic.reserved > room) REQUIRE(found);
      // where memory or stages that outnumber the layers shut the way of single moves, the best
      // split may stay unseen
      const double near = share < 1 || c.pp * c.vpp > c.layers ? 0.03 : 0.001;
      CHECK((found ? found->outcome.step : automatic.step) <= best.step * (1 + near));
      if (!found) continue;
      CHECK(found->outcome.reserved <= room);
      improved += share > 1 ? 1 : 0;
    }
  }
  CHECK(improved >= 3);
}

TEST_CASE("a run with the split that was found gives the numbers that were found") {
  const Case c{"deepseek-v3", "gb200-nvl72", 16, 7, 2, 2, false};
  Layout l;
  const Problem p = small_problem(c, l);
  const auto found = better_split(p, l, Evaluator(p).evaluate(l, Depth::exact), 1e15);
  REQUIRE(found);
  Problem own = p;
  own.run.pipeline_model_parallel_layout = found->layout;
  l.pipeline_split = PipelineSplit::explicit_string;
  const Outcome o = Evaluator(own).evaluate(l, Depth::exact);
  CHECK(o.step == found->outcome.step);
  CHECK(o.reserved == found->outcome.reserved);
  CHECK(!better_split(own, l, o, 1e15));
}
