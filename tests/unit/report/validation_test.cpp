#include "report/memory_figures.hpp"
#include "report/validation_summary.hpp"

#include <cmath>

#include "catch.hpp"

using namespace moecast;

namespace {

struct Case {
  const char* id;
  std::optional<double> predicted, measured;
  const char* group = "";
  const char* system = "dgx-h100";
};

/// Rows and forecasts of the same order; no prediction = not forecast.
struct Rows {
  std::vector<MeasuredRow> rows;
  std::vector<ValidatedRow> validated;
  explicit Rows(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      MeasuredRow row;
      row.id = c.id;
      row.tflops_per_gpu = c.measured;
      row.columns = {{"ab_group", c.group},
                     {"system", c.system},
                     {"model", "m"},
                     {"precision", "bf16"},
                     {"seq_len", "4096"}};
      ValidatedRow out;
      out.id = c.id;
      out.status = c.predicted ? "ok" : "unsupported";
      out.measured_tflops_per_gpu = c.measured;
      if (c.predicted) {
        Estimate estimate;
        estimate.tflops_per_gpu = *c.predicted;
        compare(row, estimate, out);
      }
      rows.push_back(row);
      validated.push_back(out);
    }
  }
  [[nodiscard]] nlohmann::ordered_json groups() const { return ab_groups(rows, validated); }
  [[nodiscard]] nlohmann::ordered_json summary() const {
    return validation_summary(rows, validated, groups());
  }
};

RankMemory rank(int pp_rank, double peak_gib, double reserved_gib) {
  RankMemory memory;
  memory.pp_rank = pp_rank;
  memory.peak = gibibytes(peak_gib);
  memory.peak_reserved = gibibytes(reserved_gib);
  return memory;
}

}  // namespace

TEST_CASE("the summary of five rows is what one computes by hand") {
  // errors +10, -20, +5 and one row that was not forecast; the last has no measured value and
  // counts nowhere
  const Rows table({{"a", 110.0, 100.0},
                    {"b", 160.0, 200.0},
                    {"c", 315.0, 300.0},
                    {"d", std::nullopt, 400.0},
                    {"e", 50.0, std::nullopt}});
  const auto s = table.summary();
  CHECK(s.at("n") == 4);
  CHECK_THAT(s.at("mape_pct").get<double>(), WithinRel((10.0 + 20.0 + 5.0 + 100.0) / 4.0, 1e-12));
  CHECK_THAT(s.at("median_ape_pct").get<double>(), WithinRel(15.0, 1e-12));
  CHECK_THAT(s.at("p90_ape_pct").get<double>(), WithinRel(100.0, 1e-12));
  CHECK_THAT(s.at("bias_pct").get<double>(), WithinRel(-5.0 / 3.0, 1e-12));
  CHECK_THAT(s.at("spearman").get<double>(), WithinRel(1.0, 1e-12));
  CHECK(s.at("coverage") == nlohmann::ordered_json{{"n", 5}, {"forecast", 4}});
  CHECK_FALSE(table.validated[4].error_pct);
  CHECK(table.validated[4].predicted_tflops_per_gpu == 50.0);
}

TEST_CASE("groups of the summary hold their own rows only") {
  const Rows table({{"a", 110.0, 100.0, "", "dgx-h100"},
                    {"b", 120.0, 100.0, "", "dgx-h100"},
                    {"c", 70.0, 100.0, "", "gb200-nvl72"},
                    {"d", 70.0, std::nullopt, "", "dgx-b200"}});
  const auto systems = table.summary().at("by").at("system");
  CHECK(systems.size() == 2);  // no measured value, no group
  CHECK(systems.at("dgx-h100").at("n") == 2);
  CHECK_THAT(systems.at("dgx-h100").at("mape_pct").get<double>(), WithinRel(15.0, 1e-12));
  CHECK_THAT(systems.at("dgx-h100").at("bias_pct").get<double>(), WithinRel(15.0, 1e-12));
  CHECK_THAT(systems.at("gb200-nvl72").at("bias_pct").get<double>(), WithinRel(-30.0, 1e-12));
  CHECK(table.summary().at("by").at("model").at("m").at("n") == 3);
}

TEST_CASE("a summary of nothing has null errors and no crash") {
  const auto s = Rows({}).summary();
  CHECK(s.at("n") == 0);
  CHECK(s.at("mape_pct").is_null());
  CHECK(s.at("spearman").is_null());
  CHECK(s.at("memory").at("n") == 0);
}

TEST_CASE("nearest rank takes a value that is there") {
  CHECK(nearest_rank({5, 1, 4, 2, 3, 6, 7, 8, 9, 10}, 90) == 9.0);
  CHECK(nearest_rank({1, 2, 3}, 90) == 3.0);
  CHECK(nearest_rank({7}, 90) == 7.0);
  CHECK_FALSE(nearest_rank({}, 90));
}

TEST_CASE(
    "Spearman's correlation agrees with 1 - 6 sum d^2 / (n (n^2 - 1)) and shares ranks on ties") {
  // ranks 1 2 3 4 5 against 2 1 4 3 5: d^2 = 1+1+1+1+0
  CHECK_THAT(*spearman({1, 2, 3, 4, 5}, {20, 10, 40, 30, 50}),
             WithinRel(1.0 - 6.0 * 4.0 / (5.0 * 24.0), 1e-12));
  CHECK_THAT(*spearman({1, 2, 3}, {9, 8, 7}), WithinRel(-1.0, 1e-12));
  // ranks 1.5 1.5 3 against 1 2 3: covariance 1.5, variances 1.5 and 2
  CHECK_THAT(*spearman({4, 4, 9}, {1, 2, 3}), WithinRel(1.5 / std::sqrt(1.5 * 2.0), 1e-12));
  CHECK_FALSE(spearman({1, 1}, {1, 2}));
  CHECK_FALSE(spearman({1}, {1}));
}

TEST_CASE("pairs of an A/B group are scored where the measured effect is above the noise") {
  // a -> b measured +20 %, forecast +5 %: right. a -> c measured +1 %: no sign. b -> c measured
  // -15.8 %, forecast +3 %: wrong.
  const Rows table({{"a", 100.0, 100.0, "g"},
                    {"other", 1.0, 1.0},
                    {"b", 105.0, 120.0, "g"},
                    {"c", 108.0, 101.0, "g"}});
  const auto groups = table.groups();
  REQUIRE(groups.size() == 1);
  const auto& pairs = groups[0].at("pairs");
  REQUIRE(pairs.size() == 3);
  CHECK((pairs[0].at("a") == "a" && pairs[0].at("b") == "b"));
  CHECK_THAT(pairs[0].at("measured_ratio").get<double>(), WithinRel(1.2, 1e-12));
  CHECK_THAT(pairs[0].at("predicted_ratio").get<double>(), WithinRel(1.05, 1e-12));
  CHECK(pairs[0].at("sign_right") == true);
  CHECK(pairs[1].at("sign_right").is_null());
  CHECK(pairs[2].at("sign_right") == false);
  CHECK(table.summary().at("ab") == nlohmann::ordered_json{{"n", 2}, {"right", 1}});
}

TEST_CASE("a knob that does not move the forecast has claimed no sign, whatever the roundings") {
  const Rows table({{"a", 100.0, 100.0, "g"}, {"b", 100.000001, 120.0, "g"}});
  CHECK(table.groups()[0].at("pairs")[0].at("sign_right") == false);
  CHECK_THAT(*spearman({4, 4 + 1e-9, 9}, {1, 2, 3}), WithinRel(1.5 / std::sqrt(3.0), 1e-12));
}

TEST_CASE(
    "a pair that was not forecast gets its sign wrong; rows without TFLOPS compare tokens per "
    "second") {
  Rows table({{"a", 100.0, 100.0, "g"},
              {"b", std::nullopt, 120.0, "g"},
              {"c", 100.0, std::nullopt, "h"},
              {"d", 90.0, std::nullopt, "h"}});
  table.rows[2].columns["tokens_per_s_per_gpu"] = "1000";
  table.rows[3].columns["tokens_per_s_per_gpu"] = "800";
  const auto groups = table.groups();
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].at("pairs")[0].at("sign_right") == false);
  CHECK(groups[0].at("pairs")[0].at("predicted_ratio").is_null());
  CHECK_THAT(groups[1].at("pairs")[0].at("measured_ratio").get<double>(), WithinRel(0.8, 1e-12));
  CHECK(groups[1].at("pairs")[0].at("sign_right") == true);
  table.rows[3].columns["seq_len"] = "8192";  // tokens of another length are other work
  CHECK(table.groups().size() == 1);
}

TEST_CASE("the predicted peak is the kind of figure and the rank that mem_basis names") {
  Estimate estimate;
  estimate.ranks = {rank(0, 60, 70), rank(1, 65, 72), rank(2, 50, 90)};
  estimate.ranks[0].peak_first_step = gibibytes(48);
  estimate.ranks[0].peak_before_graphs = gibibytes(58);
  const auto predicted = [&](const char* basis, const char* notes = "", const char* release = "") {
    MeasuredRow row;
    row.mem_basis = basis;
    row.peak_mem_gib = 60;
    row.columns = {{"notes", notes}, {"release", release}};
    read_memory_figures(row);
    return predicted_peak_gib(row, estimate);
  };
  CHECK_THAT(predicted("max allocated"), WithinRel(65.0, 1e-12));
  const char* rank_0 = "rank-0 measured peak (converted from decimal GB)";
  CHECK_THAT(predicted(rank_0), WithinRel(60.0, 1e-12));
  CHECK_THAT(predicted("max reserved"), WithinRel(90.0, 1e-12));
  CHECK_THAT(predicted("rank-0 reserved"), WithinRel(70.0, 1e-12));
  CHECK_THAT(predicted(rank_0, "figure = peak after iteration 1"), WithinRel(48.0, 1e-12));
  // Bridge prints the peak of iteration 2, per-layer graphs are captured after iteration 3
  estimate.run.layout.cuda_graph_impl = CudaGraphImpl::transformer_engine;
  CHECK_THAT(predicted(rank_0, "", "26.04"), WithinRel(58.0, 1e-12));
  CHECK_THAT(predicted(rank_0, "", "mcore dev"), WithinRel(60.0, 1e-12));
}

TEST_CASE(
    "a memory line of an early Bridge log is of the first step, of whichever stage printed it") {
  Estimate estimate;
  estimate.ranks = {rank(0, 60, 70), rank(1, 65, 72), rank(2, 50, 90)};
  for (std::size_t i = 0; i < 3; ++i)
    estimate.ranks[i].peak_first_step = gibibytes(40 + 2 * static_cast<double>(i));
  const auto predicted = [&](double measured, const char* release,
                             const char* source = "Megatron-Bridge skills/SKILL.md (PR 3107)",
                             const char* basis = "peak") {
    std::vector<MeasuredRow> rows(1);
    rows[0].mem_basis = basis;
    rows[0].peak_mem_gib = measured;
    rows[0].columns = {{"source", source}, {"release", release}};
    read_memory_figures(rows[0]);
    std::vector<ValidatedRow> out(1);
    compare(rows[0], estimate, out[0]);
    choose_stages(rows, out);
    return *out[0].predicted_peak_gib;
  };
  CHECK_THAT(predicted(39, "26.02"), WithinRel(40.0, 1e-12));
  CHECK_THAT(predicted(41.5, "26.02-26.04"), WithinRel(42.0, 1e-12));
  CHECK_THAT(predicted(60, "25.11"), WithinRel(44.0, 1e-12));
  CHECK_THAT(predicted(39, "26.04"), WithinRel(65.0, 1e-12));  // printed after the second
  CHECK_THAT(predicted(39, "26.02", "a paper"), WithinRel(65.0, 1e-12));
  CHECK_THAT(predicted(71, "26.02", "Megatron-Bridge", "max reserved"), WithinRel(70.0, 1e-12));
}

TEST_CASE("where the stage is not known, rows of an A/B group are held to the first one's error") {
  std::vector<MeasuredRow> rows(4);
  std::vector<ValidatedRow> out(4);
  const double measured[] = {50, 53.8, 53.8, 46};
  const std::vector<double> stages[] = {{48, 52, 60}, {52, 57}, {52, 57}, {}};
  for (std::size_t i = 0; i < 4; ++i) {
    rows[i].peak_mem_gib = measured[i];
    rows[i].columns["ab_group"] = i == 2 ? "" : "g";
    out[i].stage_peaks_gib = stages[i];
  }
  choose_stages(rows, out);
  CHECK(out[0].predicted_peak_gib == 48);  // as near as 52: the first
  CHECK(out[1].predicted_peak_gib == 52);  // nearest to 53.8 + (48 - 50)
  CHECK(out[2].predicted_peak_gib == 52);  // alone
  CHECK_THAT(*out[1].memory_error_pct, WithinRel(100 * (52 / 53.8 - 1), 1e-12));
  CHECK(!out[3].predicted_peak_gib);  // its stage is known
  rows[0].peak_mem_gib = 58;
  choose_stages(rows, out);
  CHECK(out[0].predicted_peak_gib == 60);
  CHECK(out[1].predicted_peak_gib == 57);  // 53.8 + 2 is nearer to 57: the pair's difference
  CHECK(out[2].predicted_peak_gib == 52);
}

TEST_CASE("H200 runs that shared a process lack its cuBLAS workspaces, at rest and at the peak") {
  Estimate estimate;
  estimate.ranks = {rank(0, 60, 70)};
  estimate.ranks[0].at_rest = gibibytes(50);
  const auto compared = [&](double at_rest, const char* release) {
    MeasuredRow row;
    row.peak_mem_gib = 60;
    row.at_rest_gib = at_rest;
    row.columns = {{"release", release}};
    ValidatedRow out;
    compare(row, estimate, out);
    CHECK_THAT(50 - out.at_rest_gib->predicted, WithinAbs(60 - *out.predicted_peak_gib, 1e-12));
    return *out.predicted_peak_gib;
  };
  CHECK(compared(50.02, "megatron-local-2026-08") == 60);
  CHECK(compared(49.98, "megatron-local-2026-08") == 60);
  CHECK_THAT(compared(49.95, "megatron-local-2026-08"), WithinRel(60 - 64 / 1024.0, 1e-12));
  CHECK(compared(49.95, "26.08") == 60);
}

TEST_CASE("at-rest memory, reserved memory and parameters are read from columns or from notes") {
  MeasuredRow row;
  row.columns = {{"notes",
                  "at rest 52.297 GiB, reserved 65.898 GiB, device used 68.348 GiB, params on rank "
                  "0 3114814464, optimizer 42.0 ms"}};
  read_memory_figures(row);
  CHECK(row.at_rest_gib == 52.297);
  CHECK(row.reserved_gib == 65.898);
  CHECK(row.params_rank == 3114814464.0);
  row.columns["at_rest_gib"] = "50";
  read_memory_figures(row);
  CHECK(row.at_rest_gib == 50.0);
  row.columns = {{"notes", "reserved 67.228, after step 1"}};  // decimal GB: no unit, not read
  read_memory_figures(row);
  CHECK(!row.reserved_gib);
}

TEST_CASE("memory errors count rows with a measured peak, out-of-memory rows must not fit") {
  Rows table({{"fits", 1.0, std::nullopt},
              {"oom seen", 1.0, std::nullopt},
              {"oom missed", 1.0, std::nullopt},
              {"gone", std::nullopt, std::nullopt}});
  Estimate estimate;
  estimate.ranks = {rank(0, 66, 70)};
  table.rows[0].peak_mem_gib = table.validated[0].measured_peak_gib = 60.0;
  compare(table.rows[0], estimate, table.validated[0]);
  table.validated[3].measured_peak_gib = 50.0;
  table.rows[1].columns["status"] = table.rows[2].columns["status"] = "oom";
  table.validated[1].status = "does_not_fit";
  const auto s = table.summary();
  CHECK_THAT(*table.validated[0].memory_error_pct, WithinRel(10.0, 1e-12));
  CHECK(s.at("memory").at("n") == 2);
  CHECK_THAT(s.at("memory").at("mape_pct").get<double>(), WithinRel((10.0 + 100.0) / 2.0, 1e-12));
  CHECK(s.at("oom") == nlohmann::ordered_json{{"n", 2}, {"right", 1}});
}
