// Runs that were really measured, through every kind of export and back. data/exact_rows.csv: rows
// of data whose layout is known exactly (the column source says from where);
// data/h200_arguments.csv: Megatron-LM argument lists of runs on H200 beside the layout that each
// was meant to have.
#include <algorithm>

#include "catch.hpp"
#include "layout/knobs.hpp"
#include "layout/megatron_export.hpp"
#include "layout/megatron_import.hpp"
#include "moecast/model_io.hpp"
#include "moecast/stack.hpp"
#include "moecast/validation.hpp"
#include "report/rows.hpp"

using namespace moecast;

namespace {

std::vector<MeasuredRow> rows_of(const std::string& file) {
  auto rows = read_measured_rows(std::string(MOECAST_TEST_DIR) + "/unit/report/data/" + file, {});
  for (const Diagnostic& problem : rows.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(rows.ok());
  return rows.take();
}

Exported exported(const Run& run, ExportKind kind) {
  const auto model = load_model(run.model, run.model_overrides, "");
  REQUIRE(model.ok());
  const auto stack =
      load_stack(run.software.container.empty() ? "current" : run.software.container);
  REQUIRE(stack.ok());
  auto text =
      export_run(run, model.value(), complete_software(run.software, stack.value().stack), kind);
  for (const Diagnostic& problem : text.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(text.ok());
  return text.take();
}

Run imported(const std::string& text, const ImportOptions& options = {}) {
  const auto input = read_megatron_text(text, "export", {});
  for (const Diagnostic& problem : input.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(input.ok());
  auto run = import_run(input.value(), options);
  for (const Diagnostic& problem : run.problems()) UNSCOPED_INFO(to_string(problem));
  REQUIRE(run.ok());
  return run.value().run;
}

/// Keys that two runs have differently.
std::vector<std::string> differences(const Run& a, const Run& b) {
  std::vector<std::string> keys;
  for (const Knob& knob : knob_table())
    if (knob.get(a) != knob.get(b)) keys.emplace_back(knob.key);
  return keys;
}

std::string without_comments(const std::string& text) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (text.compare(at, 10, "# moecast:") != 0) kept += text.substr(at, end - at);
    at = end;
  }
  return kept;
}

const std::vector<ExportKind> kKinds{ExportKind::megatron_lm, ExportKind::bridge,
                                     ExportKind::harness, ExportKind::dry_run};

}  // namespace

TEST_CASE("does every measured layout come back equal from every kind of export?") {
  int runs = 0;
  for (const MeasuredRow& row : rows_of("exact_rows.csv")) {
    if (!row.run) continue;
    ++runs;
    for (const ExportKind kind : kKinds) {
      const std::string text = exported(*row.run, kind).text;
      INFO(row.id << " " << to_string(kind) << "\n" << text);
      CHECK(differences(imported(text), *row.run).empty());
    }
  }
  CHECK(runs >= 55);
}

TEST_CASE("do the options alone carry every key that Megatron has a word for?") {
  // What the comments say is taken away: the keys below are the ones that may then differ.
  const std::vector<std::string> others{
      "software.container",
      "software.features",
      "cluster.gpus_used_per_domain",
      "layout.sequence_parallel",                     // auto, on and off have one flag
      "layout.pipeline_model_parallel_layout",        // auto becomes its string
      "layout.virtual_pipeline_model_parallel_size",  // follows from the string
      "model_overrides"};                             // of models whose layers have no options
  for (const MeasuredRow& row : rows_of("exact_rows.csv")) {
    if (!row.run) continue;
    for (const ExportKind kind :
         {ExportKind::megatron_lm, ExportKind::bridge, ExportKind::harness}) {
      ImportOptions options;
      options.model = row.run->model;
      options.system = row.run->system;
      options.gpus = row.run->gpus;
      const std::string text = without_comments(exported(*row.run, kind).text);
      for (const std::string& key : differences(imported(text, options), *row.run)) {
        INFO(row.id << " " << to_string(kind) << " " << key << "\n" << text);
        CHECK(std::find(others.begin(), others.end(), key) != others.end());
      }
    }
  }
}

TEST_CASE("do real argument lists give the layout that they were written for?") {
  const std::vector<std::string> others{
      "cluster.system",     "cluster.gpus",    "software.features",        "software.env",
      "software.container", "model_overrides", "layout.sequence_parallel", "moe.routing"};
  int lists = 0;
  for (const MeasuredRow& row : rows_of("h200_arguments.csv")) {
    const std::string arguments = rows::cell(row, "megatron_args");
    if (!row.run || arguments.empty()) continue;
    ++lists;
    INFO(row.id << "\n" << arguments);
    const auto input = read_megatron_text(arguments, "arguments.txt", {});
    REQUIRE(input.ok());
    CHECK(input.value().warnings.empty());  // every option is known
    ImportOptions options;
    options.system = "dgx-h200";
    options.gpus = row.run->gpus;
    const auto run = import_run(input.value(), options);
    REQUIRE(run.ok());
    for (const std::string& key : differences(run.value().run, *row.run)) {
      INFO(key);
      CHECK(std::find(others.begin(), others.end(), key) != others.end());
    }
    CHECK(run.value().run.layout.sp() == row.run->layout.sp());
    CHECK(run.value().run.software.container == "megatron-local-2026-08");
    // the same model, by whatever overrides
    const auto ours = load_model(run.value().run.model, run.value().run.model_overrides, "");
    const auto theirs = load_model(row.run->model, row.run->model_overrides, "");
    REQUIRE((ours.ok() && theirs.ok()));
    CHECK(count_params(ours.value()).total == count_params(theirs.value()).total);
  }
  CHECK(lists == 26);
}
