// Sweeps: every point is the plain search and estimate of its own question, and its budget is
// arithmetic on them.
#include "moecast/whatif.hpp"

#include <cmath>

#include "catch.hpp"
#include "core/csv.hpp"
#include "layout/run_file.hpp"
#include "moecast/evaluator.hpp"
#include "problem_of.hpp"
#include "report/report.hpp"
#include "report/whatif_report.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

constexpr double kTokens = 3e12;

/// 8 layers of a small model and few axes, so that a point takes milliseconds.
WhatIfRequest sweep(std::vector<WhatIfAxis> axes) {
  WhatIfRequest r;
  r.base.base = run_of("olmoe-1b-7b", "dgx-h100", 8);
  r.base.base.model_overrides["num_hidden_layers"] = 8;
  r.base.base.global_batch_size = 128;
  r.base.vary_micro_batch_size = false;
  for (const char* key : {"layout.context_parallel_size", "layout.expert_tensor_parallel_size",
                          "layout.tensor_model_parallel_size"})
    r.base.fix.emplace_back(key, "1");
  r.base.fix.emplace_back("recompute.granularity", "none");
  r.base.threads = 1;
  r.base.top = 1;
  r.axes = std::move(axes);
  r.tokens = kTokens;
  return r;
}

Run first_of_search(SearchRequest request) { return must(search(request)).ranked.at(0).run; }

double step_of(const Run& run) { return must(estimate(run)).step_time.value; }

std::string problems_of_sweep(const WhatIfRequest& r) {
  const Result<WhatIfResult> found = whatif(r);
  std::string text;
  for (const Diagnostic& d : found.problems()) text += to_string(d) + "\n";
  return text;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every point of a sweep is what a search and an estimate of its own question say") {
  const WhatIfRequest r =
      sweep({{"cluster.gpus", {"8", "16"}}, {"precision", {"bf16", "fp8_tensorwise"}}});
  const WhatIfResult result = must(whatif(r));
  REQUIRE(result.points.size() == 4);
  CHECK(result.complete());
  std::size_t i = 0;
  for (const int gpus : {8, 16}) {
    for (const Precision precision : {Precision::bf16, Precision::fp8_tensorwise}) {
      SearchRequest alone = r.base;
      alone.base.gpus = gpus;
      alone.precisions = {precision};
      const WhatIfPoint& p = result.points[i++];
      REQUIRE(p.runs());
      const Run best = first_of_search(alone);
      CHECK(run_to_json(p.run) == run_to_json(must(estimate(best)).run));
      CHECK(p.estimate.step_time.value == step_of(best));
      CHECK(p.run.gpus == gpus);
      CHECK(p.run.layout.precision == precision);
    }
  }
}

TEST_CASE("days, GPU-hours and cost follow from the step time, and the rest from the first point") {
  WhatIfRequest r = sweep({{"cluster.gpus", {"8", "32"}}});
  r.prices = {{"", 2.5}};
  const WhatIfResult result = must(whatif(r));
  REQUIRE(result.reference == std::size_t{0});
  for (const WhatIfPoint& p : result.points) {
    const double seconds = std::ceil(kTokens / (128.0 * 4096)) * step_of(p.run);
    CHECK_THAT(p.days, WithinRel(seconds / 86400, 1e-12));
    CHECK_THAT(p.gpu_hours, WithinRel(seconds / 3600 * p.run.gpus, 1e-12));
    CHECK_THAT(*p.cost, WithinRel(2.5 * p.gpu_hours, 1e-12));
    CHECK(p.days_p05 < p.days);
    CHECK(p.days < p.days_p95);
  }
  const WhatIfPoint &first = result.points[0], &second = result.points[1];
  CHECK(first.speedup == 1);
  CHECK_THAT(second.speedup, WithinRel(first.days / second.days, 1e-9));
  CHECK_THAT(second.efficiency, WithinRel(first.gpu_hours / second.gpu_hours, 1e-9));
}

TEST_CASE("a price may belong to one system, and without one there is no cost") {
  WhatIfRequest r = sweep({{"cluster.system", {"dgx-h100", "dgx-b200"}}});
  r.prices = {{"dgx-b200", 4}};
  const WhatIfResult result = must(whatif(r));
  CHECK_FALSE(result.points[0].cost);
  CHECK_THAT(result.points[1].cost.value_or(0), WithinRel(4 * result.points[1].gpu_hours, 1e-12));
}

TEST_CASE("what cannot run at a point says why there, and the others run") {
  const WhatIfResult gpus = must(whatif(sweep({{"cluster.gpus", {"12", "16"}}})));
  CHECK(says(gpus.points[0].reason, "cluster.gpus"));
  REQUIRE(gpus.points[1].runs());
  CHECK(gpus.reference == std::size_t{1});
  CHECK(gpus.points[1].speedup == 1);

  const WhatIfResult memory = must(whatif(sweep({{"system.hbm_capacity_gib", {"4", "x1"}}})));
  CHECK(says(memory.points[0].reason, "GiB over"));
  CHECK(memory.points[1].runs());

  const WhatIfResult rule =
      must(whatif(sweep({{"layout.pipeline_model_parallel_size", {"3", "1"}}})));
  CHECK(says(rule.points[0].reason, "no layout is legal: WORLD"));
  CHECK(rule.points[1].runs());
}

TEST_CASE("a wider link is never slower, and a factor is the same as its product") {
  WhatIfRequest r = sweep({{"system.nic_bandwidth_gb_per_s", {"25", "50", "x1", "x4"}}});
  r.base.base.gpus = 32;
  const WhatIfResult result = must(whatif(r));
  REQUIRE(result.points[3].runs());
  const auto step = [&](std::size_t i) { return result.points[i].estimate.step_time.value; };
  CHECK(step(1) <= step(0));
  CHECK(step(2) == step(1));  // 400 Gb/s is what the system has
  CHECK(step(3) < step(0));
  CHECK(step_of(result.points[3].run) == step(3));  // the run says what was overridden
}

TEST_CASE("a kept layout gains data parallelism only; a searched one is never slower") {
  WhatIfRequest r = sweep({{"cluster.gpus", {"8", "16", "32"}}});
  Run start = r.base.base;
  start.layout.ep = 8;
  start.layout.dispatcher = Dispatcher::alltoall;
  r.start = start;
  r.keep_layout = true;
  const WhatIfResult kept = must(whatif(r));
  r.keep_layout = false;
  const WhatIfResult searched = must(whatif(r));
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(kept.points[i].runs());
    CHECK(kept.points[i].started);
    start.gpus = kept.points[i].run.gpus;
    CHECK(kept.points[i].run.layout == start.layout);
    CHECK(kept.points[i].estimate.step_time.value == step_of(start));
    CHECK(searched.points[i].estimate.step_time <= kept.points[i].estimate.step_time);
  }
}

TEST_CASE("a layout that the search does not have still wins where it is faster") {
  WhatIfRequest r = sweep({{"cluster.gpus", {"8"}}});
  r.start = r.base.base;
  r.start->layout.ep = 8;
  r.start->layout.overlap_grad_reduce = true;
  r.base.base.layout.overlap_grad_reduce = false;  // what the searched layouts have to live with
  r.base.fix.emplace_back("moe.dispatcher", "alltoall");
  r.base.fix.emplace_back("layout.expert_model_parallel_size", "1");
  const WhatIfPoint p = must(whatif(r)).points.at(0);
  CHECK(p.started == (step_of(*r.start) < step_of(first_of_search(r.base))));
  CHECK(p.estimate.step_time.value ==
        std::min(step_of(*r.start), step_of(first_of_search(r.base))));
}

TEST_CASE("the fewest GPUs that keep a number of days are found, or that there are none") {
  WhatIfRequest r = sweep({{"cluster.gpus", {"32", "8", "16"}}});
  const WhatIfResult all = must(whatif(r));
  r.days = all.points[2].days;  // of 16 GPUs
  CHECK(must(whatif(r)).answer == std::size_t{2});
  r.days = all.points[0].days / 2;
  CHECK_FALSE(must(whatif(r)).answer);
}

TEST_CASE("wrong keys, values and inputs of a sweep are reported at once, before any search") {
  const std::string text = problems_of_sweep(sweep({{"cluster.gpus", {"8", "many"}},
                                                    {"precision", {"bf17"}},
                                                    {"cluster.gpu", {"8"}},
                                                    {"system.nic_bandwith_gb_per_s", {"1"}}}));
  CHECK(says(text, "cluster.gpus: must be integer"));
  CHECK(says(text, "'bf17' is not a known value"));
  CHECK(says(text, "cluster.gpu: unknown key"));
  CHECK(says(problems_of_sweep(sweep({{"system.nic_bandwith_gb_per_s", {"1"}}})),
             "did you mean 'nic_bandwidth_gb_per_s'?"));
  CHECK(says(problems_of_sweep(sweep({{"cluster.system", {"dgx-h100", "dgx-h10"}}})),
             "did you mean 'dgx-h100'?"));
  const std::vector<std::string> many(101, "8");
  CHECK(says(problems_of_sweep(sweep({{"cluster.gpus", many}, {"train.seq_length", many}})),
             "more than 10000 points"));
}

TEST_CASE("a sweep that is stopped keeps the points it has") {
  WhatIfRequest r = sweep({{"cluster.gpus", {"8", "16", "32"}}});
  std::atomic<bool> stop{false};
  r.base.stop = &stop;
  r.base.progress = [&](double fraction) { stop = stop || fraction > 0.5; };
  const WhatIfResult result = must(whatif(r));
  CHECK_FALSE(result.complete());
  CHECK(result.points.size() >= 1);
  CHECK(whatif_json(r, result).at("complete") == false);
}

TEST_CASE("text, JSON and CSV of a sweep say the same figures, and reasons where nothing runs") {
  WhatIfRequest r = sweep({{"cluster.gpus", {"12", "16"}}});
  r.days = 1e6;
  const WhatIfResult result = must(whatif(r));
  const WhatIfPoint& p = result.points[1];
  const Json d = whatif_json(r, result);
  CHECK(d.at("schema") == "moecast/whatif@1");
  CHECK(d.at("reference") == 1);
  CHECK(d.at("days").at("point") == 1);
  CHECK(d.at("points").at(0).at("runs") == false);
  CHECK(d.at("points").at(0).at("reason") == result.points[0].reason);
  CHECK(d.at("points").at(1).at("values") == Json{{"cluster.gpus", "16"}});
  CHECK(d.at("points").at(1).at("days") == p.days);
  CHECK(d.at("points").at(1).at("cost").is_null());

  const CsvTable csv =
      must(parse_csv(whatif_csv(r, result), "table.csv", {"cluster.gpus", "days"}));
  REQUIRE(csv.rows.size() == 2);
  const auto cell = [&](std::size_t row, const char* name) {
    return csv.rows[row].cells[static_cast<std::size_t>(csv.column(name))];
  };
  CHECK(cell(0, "runs") == "false");
  CHECK(cell(0, "reason") == result.points[0].reason);
  CHECK(cell(0, "days").empty());
  CHECK(std::stod(cell(1, "days")) == p.days);
  CHECK(cell(1, "wall") == to_string(p.estimate.wall));

  const std::string text = whatif_text(r, result, Style{});
  for (const char* part : {"Cannot run", "12: ", "speed-up", "Fewest GPUs for 1e+06 days: 16 GPUs"})
    CHECK(says(text, part));
}
