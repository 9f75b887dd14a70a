#include <cmath>
#include <set>

#include "catch.hpp"
#include "report/report.hpp"
#include "unit/report/sample_results.hpp"

using namespace moecast;
using namespace moecast::test;

namespace {

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& entry : object.items()) keys.insert(entry.key());
  return keys;
}

void check_has(const Json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    INFO(key);
    CHECK(object.contains(key));
  }
}

}  // namespace

TEST_CASE("the estimate document has every key that scripts are written against") {
  const Json d = estimate_json(sample_estimate(), false);
  CHECK(d.at("schema") == "moecast/estimate@1");
  check_has(d, {"run", "step_time_s", "step_time_s_p05", "step_time_s_p95", "tflops_per_gpu",
                "tokens_per_s_per_gpu", "mfu_pct", "model_flops_per_token", "params", "memory",
                "wall", "time", "kernels", "groups", "warnings", "advice"});
  CHECK(keys_of(d.at("params")) == std::set<std::string>{"total", "active", "per_rank_max"});
  check_has(d.at("memory"),
            {"capacity_gib", "usable_gib", "peak_gib", "peak_reserved_gib", "fits", "ranks"});
  check_has(
      d.at("memory").at("ranks").at(0),
      {"pp_rank", "peak_gib", "peak_reserved_gib", "weights_gib", "gradients_gib", "optimizer_gib",
       "activations_gib", "dispatcher_gib", "cuda_graph_gib", "workspace_gib"});
  CHECK(keys_of(d.at("time")) ==
        std::set<std::string>{"compute_s", "ep_comm_total_s", "ep_comm_exposed_s",
                              "tp_comm_exposed_s", "cp_comm_exposed_s", "pp_comm_exposed_s",
                              "dp_comm_exposed_s", "pipeline_bubble_s", "host_exposed_s",
                              "optimizer_s", "recompute_s"});
  CHECK(keys_of(d.at("kernels")) == std::set<std::string>{"grouped_gemm_s", "dense_gemm_s",
                                                          "attention_s", "permute_s",
                                                          "memory_bound_s", "quantize_s"});
  CHECK(keys_of(d.at("groups").at(0)) ==
        std::set<std::string>{"name", "size", "domains_spanned", "bandwidth_gb_per_s"});
  CHECK(keys_of(d.at("warnings").at(0)) == std::set<std::string>{"rule", "message"});
  CHECK(keys_of(d.at("advice").at(0)) ==
        std::set<std::string>{"change", "step_time_delta_pct", "memory_delta_gib"});
}

TEST_CASE("the estimate document's figures are those of the estimate, in the units of their keys") {
  const Json d = estimate_json(sample_estimate(), false);
  const Json& time = d.at("time");
  // powers of two from 1 to 256 ms: a field that is missing or swapped changes a digit
  const std::vector<std::pair<std::string, double>> powers{
      {"optimizer_s", 0.001},       {"host_exposed_s", 0.002},    {"pipeline_bubble_s", 0.004},
      {"dp_comm_exposed_s", 0.008}, {"pp_comm_exposed_s", 0.016}, {"cp_comm_exposed_s", 0.032},
      {"tp_comm_exposed_s", 0.064}, {"ep_comm_exposed_s", 0.128}, {"compute_s", 0.256}};
  double sum = 0;
  for (const auto& [key, value] : powers) {
    INFO(key);
    CHECK_THAT(time.at(key).get<double>(), WithinRel(value, 1e-12));
    sum += time.at(key).get<double>();
  }
  CHECK_THAT(sum, WithinRel(d.at("step_time_s").get<double>(), 1e-12));
  double kernels = 0;
  for (const auto& kernel : d.at("kernels").items()) kernels += kernel.value().get<double>();
  CHECK_THAT(kernels, WithinRel(0.256, 1e-12));
  CHECK_THAT(d.at("memory").at("peak_gib").get<double>(), WithinRel(27.5, 1e-12));
  CHECK_THAT(d.at("memory").at("peak_reserved_gib").get<double>(), WithinRel(29.5, 1e-12));
  CHECK(d.at("memory").at("ranks").size() == 4);
  CHECK_THAT(d.at("memory").at("ranks").at(3).at("optimizer_gib").get<double>(),
             WithinRel(6.0, 1e-12));
  CHECK(d.at("wall") == "communication");
  CHECK_THAT(d.at("groups").at(0).at("bandwidth_gb_per_s").get<double>(), WithinRel(45.0, 1e-12));
}

TEST_CASE("memory detail is a tree with formulas, and only there when asked for") {
  const Json plain = estimate_json(sample_estimate(), false).at("memory").at("ranks").at(0);
  CHECK_FALSE(plain.contains("detail"));
  const Json detail =
      estimate_json(sample_estimate(), true).at("memory").at("ranks").at(0).at("detail");
  CHECK(detail.at("children").at(0).at("name") == "moe_act output");
  CHECK(detail.at("children").at(0).at("count") == 12);
  CHECK(detail.at("children").at(0).at("formula") == "rows x width");
}

TEST_CASE("the search document counts, ranks from 1 and times per second") {
  const Json d = search_json(sample_search());
  CHECK(d.at("schema") == "moecast/search@1");
  CHECK(
      d.at("space") ==
      Json::parse(
          R"({"candidates":1200,"legal":300,"evaluated":290,"fit":100,"simulated":40,"pruned":10})"));
  CHECK_THAT(d.at("candidates_per_s").get<double>(), WithinRel(2400.0, 1e-12));
  CHECK_THAT(d.at("evaluated_per_s").get<double>(), WithinRel(580.0, 1e-12));
  CHECK_THAT(d.at("simulated_per_s").get<double>(), WithinRel(80.0, 1e-12));
  CHECK(d.at("ranked").at(1).at("rank") == 2);
  CHECK_THAT(d.at("ranked").at(1).at("step_time_s").get<double>(), WithinRel(0.6, 1e-12));
  check_has(d.at("ranked").at(0),
            {"rank", "run", "step_time_s", "tflops_per_gpu", "peak_gib", "wall", "why"});
  CHECK_THAT(d.at("fit").at("step_time_s").get<double>(), WithinRel(0.7, 1e-12));
  CHECK(d.at("rejected").at("WORLD-EXPERT") == 600);
  CHECK_FALSE(d.contains("nearest"));
}

TEST_CASE("does a row say how much slower than the first it is, and how surely?") {
  SearchResult r = sample_search();
  REQUIRE(r.ranked.size() > 1);
  r.ranked[0].value = 10;
  r.ranked[1].value = 10.4;
  CHECK(!search_json(r).at("ranked")[1].contains("told_apart_from_first"));
  for (const double width : {0.02, 0.06}) {
    r.ranked[1].slower_half_width = width;
    const Json row = search_json(r).at("ranked")[1];
    CHECK_THAT(row.at("slower_pct").get<double>(), WithinRel(4.0, 1e-9));
    CHECK_THAT(row.at("slower_half_width_pct").get<double>(),
               WithinRel(100 * (std::exp(width) - 1), 1e-9));
    CHECK(row.at("told_apart_from_first") == (width < 0.03));
    const std::string text = search_text(SearchRequest{}, r, Style{});
    CHECK((text.find("~ 2") != std::string::npos) == (width > 0.03));
    CHECK((text.find("not told apart from 1") != std::string::npos) == (width > 0.03));
  }
  CHECK(!search_json(r).at("ranked")[0].contains("told_apart_from_first"));
}

TEST_CASE("a search that fits nothing has an empty ranking and the nearest layout") {
  SearchResult r = sample_search();
  r.any_fit = false;
  r.ranked.clear();
  r.pareto.clear();
  r.nearest = {sample_run(), gibibytes(2.5), "recompute.granularity=full"};
  const Json d = search_json(r);
  CHECK(d.at("ranked") == Json::array());
  CHECK(d.at("fit").is_null());
  CHECK_THAT(d.at("nearest").at("over_gib").get<double>(), WithinRel(2.5, 1e-12));
  CHECK(d.at("nearest").at("change") == "recompute.granularity=full");
  CHECK(d.at("nearest").at("run").at("model") == "mixtral-8x7b");
}

TEST_CASE("a finding says its phase only when it fails at run time") {
  Checked checked;
  checked.findings = {{"A", Severity::error, {"layout.pp"}, "m", "f", "bridge", Phase::config},
                      {"B", Severity::warning, {}, "n", "", "", Phase::runtime}};
  checked.mutations = {{"SET-C", Severity::mutation, {}, "tp 1 -> 2", "", ""}};
  const Json d = check_json(checked);
  CHECK(d.at("schema") == "moecast/check@1");
  CHECK(keys_of(d.at("findings").at(0)) ==
        std::set<std::string>{"rule", "severity", "keys", "message", "fix", "applies"});
  CHECK(d.at("findings").at(1).at("phase") == "runtime");
  CHECK(d.at("findings").at(1).at("severity") == "warning");
  CHECK(d.at("findings").at(2).at("severity") == "info");
  CHECK(d.at("findings").at(2).at("kind") == "mutation");
}

TEST_CASE("problems become the error document, and text that is not UTF-8 does not break it") {
  const Json d = error_json({{"run.yaml", 3, 7, "layout.tp", "bad byte \xff", "fix"}});
  CHECK(d.at("schema") == "moecast/error@1");
  CHECK(keys_of(d.at("errors").at(0)) ==
        std::set<std::string>{"file", "line", "column", "key", "message", "hint"});
  const Json back = Json::parse(dump(d));
  CHECK(back.at("errors").at(0).at("line") == 3);
  CHECK(back.at("errors").at(0).at("column") == 7);
}

TEST_CASE("a validated row that was not forecast has null errors") {
  Validation v;
  v.rows = {{"r1", "illegal", "why", std::nullopt, 300.0, std::nullopt, std::nullopt, std::nullopt,
             std::nullopt}};
  v.summary = {{"n", 1}};
  const Json d = validation_json(v);
  CHECK(d.at("schema") == "moecast/validate@1");
  CHECK(d.at("rows").at(0).at("error_pct").is_null());
  CHECK(d.at("rows").at(0).at("measured_tflops_per_gpu") == 300.0);
  CHECK(d.at("groups") == Json::array());
}

TEST_CASE("an imported model's document counts layers by kind") {
  ModelSpec m;
  m.name = "tiny";
  m.architecture = "Test";
  m.hidden_size = 8;
  m.ffn_hidden_size = 16;
  m.vocab_size = 100;
  m.mixers = {Mixer{}};
  m.layers = {{0, FfnKind::dense}, {0, FfnKind::dense}, {0, FfnKind::none}};
  const Json d = imported_model_json(m, 128);
  CHECK(d.at("schema") == "moecast/model@1");
  CHECK(d.at("layers").at("dense") == 2);
  CHECK(d.at("layers").at("moe") == 0);
  CHECK(d.at("layers").at("total") == 3);
  check_has(d, {"name", "architecture", "params", "model_flops_per_token", "layers", "warnings"});
  check_has(d.at("params"), {"total", "active", "active_without_input_embedding"});
}
