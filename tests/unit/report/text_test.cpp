#include <algorithm>
#include <sstream>

#include "catch.hpp"
#include "report/layout_words.hpp"
#include "report/report.hpp"
#include "report/table.hpp"
#include "unit/report/sample_results.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The first line with `part`.
std::string line_with(const std::string& text, const std::string& part) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (contains(line, part)) return line;
  return "";
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("a table's numbers end in one column and its words start in one") {
  Table table({{"name", Table::Align::left}, {"value"}});
  table.add({"a", "1"});
  table.add({"long name", "12345"});
  CHECK(table.to_text(Style{}, 0) == "name       value\na              1\nlong name  12345\n");
}

TEST_CASE("a table counts letters, not bytes") {
  Table table({{"x", Table::Align::left}, {"y"}});
  table.add({"\xc3\xa9", "1"});  // e with acute accent: two bytes
  CHECK(table.to_text(Style{}, 0) == "x  y\n\xc3\xa9  1\n");
}

TEST_CASE("numbers are written for people") {
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(1234567) == "1,234,567");
  CHECK(with_commas(-123456) == "-123,456");
  CHECK(short_count(671e9) == "671.0 B");
  CHECK(short_count(2.8e12) == "2.80 T");
  CHECK(short_seconds(12.3456) == "12.346 s");
  CHECK(short_seconds(0.0123) == "12.3 ms");
  CHECK(short_seconds(5e-6) == "5.0 us");
  CHECK(short_seconds(0) == "0.000 s");
}

TEST_CASE("wrapped text keeps every word and no line passes the width") {
  const std::string text = wrapped("one two three four five six", 12, 2);
  CHECK(text == "one two\n  three four\n  five six");
}

TEST_CASE("a layout's words are short and say everything that is on") {
  Run run = sample_run();
  CHECK(layout_words(run).recompute == "-");
  CHECK(layout_words(run).graph == "-");
  Layout& l = run.layout;
  l.recompute_granularity = RecomputeGranularity::selective;
  l.recompute_modules.add(RecomputeModule::moe_act).add(RecomputeModule::layernorm);
  l.offload_modules.add(OffloadModule::moe_act);
  l.offload_fraction = 0.5;
  l.optimizer_offload_fraction = 0.25;
  l.cuda_graph_impl = CudaGraphImpl::transformer_engine;
  l.cuda_graph_scope.add(GraphModule::attn);
  l.overlap_moe_expert_parallel_comm = true;
  l.delay_wgrad_compute = true;
  const LayoutWords words = layout_words(run);
  CHECK(words.recompute == "moe_act+layernorm");
  CHECK(words.offload == "moe_act 0.5+optimizer 0.25");
  CHECK(words.graph == "te:attn");
  CHECK(words.overlap == "ep+wgrad");
  l.recompute_granularity = RecomputeGranularity::full;
  l.recompute_method = RecomputeMethod::block;
  l.recompute_num_layers = 3;
  CHECK(layout_words(run).recompute == "full(block,3)");
}

TEST_CASE("derived sizes are those of Megatron's meshes") {
  const Run run = sample_run();  // 64 GPUs, TP 2, PP 4, EP 8
  CHECK(data_parallel(run) == 8);
  CHECK(expert_data_parallel(run) == 2);
  CHECK(num_microbatches(run) == 32);  // 256 / (1 x 8)
}

TEST_CASE("the estimate report leads with the step and adds its parts up to it") {
  const std::string text = estimate_text(sample_estimate(), std::nullopt, Style{});
  CHECK(contains(line_with(text, "Step time"), "511.0 ms"));
  CHECK(
      contains(line_with(text, "Throughput"), "333.3 TFLOPS/GPU, 32,064 tokens/s/GPU, MFU 33.7 %"));
  CHECK(contains(line_with(text, "Memory "), "27.5 GiB allocated, 29.5 reserved of 77.0 usable"));
  CHECK(contains(line_with(text, "Memory "), "fits, 47.5 GiB to spare"));
  CHECK(contains(line_with(text, "Wall"), "communication 190.0 ms"));
  CHECK(contains(text, "TP 2  PP 4  VPP 1  CP 1  EP 8  ETP 1  DP 8  EDP 2"));
  CHECK(contains(line_with(text, "  step "), "0.5110  100.0 %"));
  CHECK(contains(line_with(text, "<- largest"), "27.50"));
  CHECK(contains(text, "rank 0 is the largest: embedding; its peak stands at: end of warm-up"));
  CHECK(contains(line_with(text, "SOME-RULE"), "the message of a warning"));
  CHECK(contains(line_with(text, "moe.dispatcher=deepep"), "-8.1 %"));
  CHECK(widest_line(text) <= 140);
  CHECK_FALSE(contains(text, "\033"));
}

TEST_CASE("a layout that does not fit says by how much") {
  Estimate e = sample_estimate();
  e.fits = false;
  e.usable = gibibytes(20);
  CHECK(contains(estimate_text(e, std::nullopt, Style{}), "does NOT fit, 9.5 GiB over"));
}

TEST_CASE("a terminal's colours do not change the words") {
  const Style plain, colour{true};
  std::string coloured = estimate_text(sample_estimate(), std::nullopt, colour);
  REQUIRE(contains(coloured, "\033["));
  for (std::size_t at; (at = coloured.find("\033[")) != std::string::npos;)
    coloured.erase(at, coloured.find('m', at) - at + 1);
  CHECK(coloured == estimate_text(sample_estimate(), std::nullopt, plain));
}

TEST_CASE("the pipeline is drawn in Megatron's letters, one row per rank") {
  PipelinePlan plan;
  plan.pp = 2;
  plan.vpp = 2;
  plan.stages = {{true, {0, 1}, false, false},
                 {false, {2, 3}, false, false},
                 {false, {4, 5, 6, 7, 8, 9, 10}, false, false},
                 {false, {11}, true, true}};
  const std::string text = pipeline_drawing(plan, "");
  CHECK(text ==
        "PP rank  chunk 0  chunk 1  layers\n"
        "      0  Ett      t*7      0-1, 4-10\n"
        "      1  tt       tmL      2-3, 11\n");
}

TEST_CASE("memory detail is an indented tree with amounts, counts and formulas") {
  const std::string text = memory_detail_text(sample_rank(0, 5), Style{});
  CHECK(contains(line_with(text, "    moe_act output"), "3.000"));
  CHECK(contains(line_with(text, "moe_act output"), "12  rows x width"));
}

TEST_CASE("the search report ranks, explains, and sorts rejections by how many they took") {
  SearchRequest request;
  request.base = sample_run();
  const std::string text = search_text(request, sample_search(), Style{});
  CHECK(contains(text,
                 "1,200 candidates, 300 legal, 290 evaluated, 100 fit, 40 simulated, 10 pruned"));
  CHECK(contains(line_with(text, "0.5000"), "200.0"));
  CHECK(contains(text, "least pipeline bubble"));
  CHECK(text.find("WORLD-EXPERT") < text.find("WORLD-ATTENTION"));
  CHECK(text.find("WORLD-ATTENTION") < text.rfind("memory"));
  CHECK(widest_line(text) <= 140);
}

TEST_CASE("a search that fits nothing names the shortfall and the change") {
  SearchRequest request;
  request.base = sample_run();
  SearchResult r = sample_search();
  r.any_fit = false;
  r.ranked.clear();
  r.nearest = {sample_run(), gibibytes(2.5), "recompute.granularity=full"};
  const std::string text = search_text(request, r, Style{});
  CHECK(contains(text, "Nothing fits: the nearest is 2.50 GiB over"));
  CHECK(contains(text, "nearest change that would fit: recompute.granularity=full"));
}

TEST_CASE("a check names rule, cause, fix and the verdict") {
  Checked checked;
  checked.findings = {
      {"A-RULE", Severity::error, {"layout.pp"}, "the cause", "the fix", "bridge", Phase::config},
      {"B-RULE", Severity::warning, {}, "another", "", "", Phase::runtime}};
  const std::string text = check_text("run.yaml", checked, Style{});
  CHECK(contains(text, "error[A-RULE]: the cause"));
  CHECK(contains(text, "fix: the fix"));
  CHECK(contains(text, "warning[B-RULE] (when training starts): another"));
  CHECK(contains(text, "run.yaml: illegal (1 errors, 1 warnings, 0 notes)"));
  CHECK(contains(check_text("run.yaml", Checked{}, Style{}), "run.yaml: legal"));
}

TEST_CASE("the validation report shows summary, parts, the worst row first and the signs") {
  Validation v;
  v.rows = {{"good", "ok", "", 310.0, 300.0, 3.3, 60.0, 61.0, -1.6},
            {"bad", "ok", "", 200.0, 300.0, -33.3, std::nullopt, std::nullopt, std::nullopt},
            {"lost", "illegal", "EP-SIZE", std::nullopt, 300.0, std::nullopt, std::nullopt,
             std::nullopt, std::nullopt}};
  v.summary = Json::parse(R"({"n":3,"mape_pct":45.5,"memory":{"n":1,"mape_pct":1.6},
                              "by":{"system":{"dgx-h100":{"n":3,"mape_pct":45.5}}}})");
  v.groups = Json::parse(R"([{"ab_group":"g","pairs":[
      {"a":"x","b":"y","measured_ratio":1.2,"predicted_ratio":1.1,"sign_right":true},
      {"a":"x","b":"z","measured_ratio":1.01,"predicted_ratio":0.9,"sign_right":null}]}])");
  const std::string text = validation_text(v, Style{});
  CHECK(contains(text, "MAPE 45.5 % over 3 rows"));
  CHECK(contains(line_with(text, "dgx-h100"), "45.5"));
  CHECK(text.find("lost") < text.find("bad"));
  CHECK(text.find("bad") < text.find("good"));
  CHECK(contains(text, "1 of 1 one-knob changes have the right sign"));
}
