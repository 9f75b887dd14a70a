#include "layout/megatron_export.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "core/text.hpp"
#include "layout/export_text.hpp"
#include "layout/knobs.hpp"
#include "layout/megatron_import.hpp"
#include "layout/pipeline_plan.hpp"
#include "layout/run_config.hpp"
#include "layout/run_file.hpp"
#include "moecast/model_io.hpp"

namespace moecast {
namespace {

constexpr std::string_view kNames[] = {"megatron-lm", "bridge", "harness", "dry-run"};

std::string header(ExportKind kind) {
  const std::string first = kind == ExportKind::bridge ? "" : "#!/bin/bash\n";
  std::string text = first + fmt::format(
                                 "# Written by moecast export --to {}. moecast import reads it "
                                 "back: the lines \"# moecast:\"\n"
                                 "# are keys of the run that the options below have no word for.\n",
                                 to_string(kind));
  if (kind == ExportKind::bridge)
    text += "# Use: source <(grep ^export FILE); torchrun ... $(grep -v -e '^#' -e ^export FILE)\n";
  return text;
}

bool is_plain(const std::string& text) {
  const bool name = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("_./+-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return name && std::isalpha(static_cast<unsigned char>(text[0])) && !is_null_text(text) &&
         text != "true" && text != "false";
}

/// key=value as --set takes it.
std::string assignment(const Knob& knob, const Run& run) {
  const Value value = knob.get(run);
  const bool plain = value.is_string() && is_plain(value.get<std::string>());
  return fmt::format("{}={}", knob.key, plain ? value.get<std::string>() : value.dump());
}

/// Keys that say elsewhere what the exported options say too, or that are the user's own affair.
bool is_silent(const Knob& knob) {
  static const std::vector<std::string_view> keys{"model",
                                                  "model_overrides",
                                                  "cluster.system",
                                                  "cluster.gpus",
                                                  "cluster.gpus_used_per_domain",
                                                  "layout.sequence_parallel",
                                                  "layout.pipeline_model_parallel_layout",
                                                  "layout.virtual_pipeline_model_parallel_size",
                                                  "software.container",
                                                  "software.pytorch",
                                                  "software.transformer_engine",
                                                  "software.megatron_core",
                                                  "software.bridge"};
  return std::find(keys.begin(), keys.end(), knob.key) != keys.end();
}

/// Features that no option switches.
std::string features_left_out(const Run& run) {
  std::string names;
  for (const auto& [name, on] : run.software.features) {
    const auto& fields = feature_fields();
    const bool known =  // a copy by name: lambdas of older compilers capture no structured binding
        std::any_of(fields.begin(), fields.end(),
                    [&feature = name](const FeatureField& f) { return f.feature == feature; });
    if (!known && on) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

class Exporter {
 public:
  Exporter(const Run& run, ExportKind kind) : run_(run), kind_(kind) {}

  Exported write(const std::string& body) {
    keys_.push_back("cluster.system=" + run_.system);
    if (kind_ != ExportKind::megatron_lm)
      keys_.push_back(fmt::format("cluster.gpus={}", run_.gpus));
    const std::string start = header(kind_);
    std::string text = start + lines() + body;
    compare(text);
    return {start + lines() + body, std::move(warnings_)};
  }

 private:
  [[nodiscard]] std::string lines() const {
    std::string text;
    for (const std::string& key : keys_) text += "# moecast: " + key + "\n";
    return text;
  }

  /// What an import of the text gives differently is said in a line of its own.
  void compare(const std::string& text) {
    InputOptions options;
    const auto input = read_megatron_text(text, "export", options);
    ImportOptions known;
    known.gpus = run_.gpus;
    auto imported =
        input ? import_run(input.value(), known) : Result<ImportedRun>(input.problems());
    if (!imported || imported.value().model) {  // the options do not describe the model
      known.model = run_.model;
      known.sets = {"model_overrides=" + Value(run_.model_overrides).dump()};
      imported = input ? import_run(input.value(), known) : Result<ImportedRun>(input.problems());
      keys_.push_back("model=" + run_.model);
      if (!run_.model_overrides.empty())
        keys_.push_back("model_overrides=" + Value(run_.model_overrides).dump());
    }
    for (const Knob& knob : knob_table()) {
      if (imported && knob.get(imported.value().run) == knob.get(run_)) continue;
      if (knob.key == "cluster.system" || (knob.key == "cluster.gpus")) continue;
      keys_.push_back(assignment(knob, run_));
      if (imported) warn(knob);
    }
  }

  void warn(const Knob& knob) {
    if (is_silent(knob)) return;
    std::string message =
        fmt::format("{} has no word for {}", to_string(kind_), assignment(knob, run_));
    if (knob.key == "software.features") {
      const std::string names = features_left_out(run_);
      if (names.empty()) return;
      message = fmt::format("{} has no option for the features {}", to_string(kind_), names);
    }
    warnings_.push_back({"", 0, 0, std::string(knob.key), message, "it stands in a comment"});
  }

  const Run& run_;
  ExportKind kind_;
  std::vector<std::string> keys_;
  Diagnostics warnings_;
};

Diagnostics hints(const ExportSource& s, ExportKind kind) {
  Diagnostics warnings;
  const auto warn = [&](std::string key, std::string message, std::string hint) {
    warnings.push_back({"", 0, 0, std::move(key), std::move(message), std::move(hint)});
  };
  const bool lm = kind == ExportKind::megatron_lm || kind == ExportKind::dry_run;
  if (lm && !has_gpt_options(s.model)) {
    warn("model", "the layers of this model have no options in pretrain_gpt.py's vocabulary",
         "add the options of the model to MODEL_ARGS");
  }
  if (kind == ExportKind::harness)
    warn("model", "the recipe is named after the model", "check -m and -mr");
  if (kind == ExportKind::harness && s.config.gpu.empty()) {
    warn("cluster.system", "the harness has no name for this machine's GPU: h100 is written",
         "set -g");
  }
  const Dispatcher d = s.run.layout.dispatcher;
  if (kind == ExportKind::dry_run && (d == Dispatcher::deepep || d == Dispatcher::hybridep)) {
    warn("moe.dispatcher", "a fake process group works with the alltoall dispatcher only",
         "the buffers of the flex dispatcher are not in its peak");
  }
  return warnings;
}

}  // namespace

std::vector<std::string> export_kind_names() { return {std::begin(kNames), std::end(kNames)}; }
std::optional<ExportKind> export_kind(std::string_view name) {
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<ExportKind>(found - std::begin(kNames));
}
std::string_view to_string(ExportKind kind) { return kNames[static_cast<std::size_t>(kind)]; }
std::string_view file_ending(ExportKind kind) {
  return kind == ExportKind::bridge ? ".txt" : ".sh";
}

Result<Exported> export_run(const Run& run, const ModelSpec& model, const Software& software,
                            ExportKind kind) {
  const bool lm = kind == ExportKind::megatron_lm || kind == ExportKind::dry_run;
  const Flavour flavour = lm ? Flavour::megatron_lm : Flavour::bridge;
  const auto config = config_of_run(run, model, software, flavour);
  if (!config) return config.problems();
  auto unchanged = config;
  if (!run.model_overrides.empty()) {
    const auto whole = load_model(run.model, nlohmann::ordered_json::object(), run.base_dir);
    if (whole) unchanged = config_of_run(run, whole.value(), software, flavour);
    if (!unchanged) unchanged = config;  // the whole model does not split the same way
  }
  const MegatronConfig base = default_config(flavour);
  const ExportSource source{run, model, config.value(), base, unchanged.value()};
  const std::string body = lm ? megatron_lm_text(source, kind == ExportKind::dry_run)
                           : kind == ExportKind::bridge ? bridge_text(source)
                                                        : harness_text(source);
  Exported exported = Exporter(run, kind).write(body);
  for (Diagnostic& warning : hints(source, kind)) exported.warnings.push_back(std::move(warning));
  return exported;
}

}  // namespace moecast
