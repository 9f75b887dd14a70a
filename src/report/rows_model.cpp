/// The model of a row, its overrides, and how its layers lie on the pipeline.
#include <algorithm>
#include <regex>

#include <fmt/format.h>

#include "core/document.hpp"
#include "layout/pipeline_plan.hpp"
#include "layout/uneven_split.hpp"
#include "moecast/model_io.hpp"
#include "report/rows.hpp"
#include "report/rows_inputs.hpp"

namespace moecast::rows {
namespace {

/// "num_hidden_layers=4;n_routed_experts=32": values are YAML scalars.
void read_overrides(MeasuredRow& row, Run& run) {
  for (const std::string& part : split(cell(row, "model_overrides"), ';')) {
    const std::size_t equals = part.find('=');
    const auto value = equals == std::string::npos
                           ? Result<Node>(Diagnostic{})
                           : parse_value(part.substr(equals + 1), "model_overrides");
    if (value) {
      run.model_overrides[part.substr(0, equals)] = value.value().to_json();
    } else {
      row.notes.push_back(fmt::format("model_overrides: '{}' is not key=value and left out", part));
    }
  }
}

/// "proxy with 4 layers; ...; 1 dense layer": a shortened model may keep fewer dense layers than
/// the full one.
void read_layers_override(MeasuredRow& row, Run& run) {
  static const std::regex kDense("\\b([0-9]{1,3}) dense layers?\\b");
  const std::string text = cell(row, "layers_override");
  if (text.empty()) return;
  const auto layers = positive_integer(text);
  if (!layers) {
    row.notes.push_back(fmt::format("layers_override: '{}' is not a number and left out", text));
    return;
  }
  run.model_overrides["num_hidden_layers"] = *layers;
  const std::string notes = cell(row, "notes").substr(0, 4096);  // std::regex recurses
  if (std::smatch hit; std::regex_search(notes, hit, kDense)) {
    run.model_overrides["first_k_dense_replace"] = std::stoi(hit[1].str());
  }
}

}  // namespace

std::optional<ModelSpec> read_model(MeasuredRow& row, Run& run, std::vector<std::string>& missing) {
  run.model = cell(row, "model");
  read_layers_override(row, run);
  read_overrides(row, run);
  const auto read = [&]() -> const Result<ModelSpec>& {
    const std::string overrides =  // bytes that are not UTF-8 are load_model's to refuse
        run.model_overrides.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    const std::string key = run.model + '\n' + overrides + '\n' + run.base_dir;
    return read_once(key, [&] { return load_model(run.model, run.model_overrides, run.base_dir); });
  };
  const Result<ModelSpec>* model = &read();
  const std::string mtp = cell(row, "mtp_layers");
  const auto depths = mtp == "0" ? std::optional<int>(0) : positive_integer(mtp);
  if (*model && depths && *depths != model->value().mtp_num_layers) {
    run.model_overrides["num_nextn_predict_layers"] = *depths;
    model = &read();
  }
  if (!mtp.empty() && !depths)
    row.notes.push_back(fmt::format("mtp_layers: '{}' is not a number; the model's own", mtp));
  if (*model) return model->value();
  missing.push_back(fmt::format("model '{}' ({})", run.model, model->problems().front().message));
  return std::nullopt;
}

std::string slot_layout(const ModelSpec& model, int pp, int vpp, bool embedding, bool loss) {
  UnevenSplit split;
  split.embedding = embedding;
  split.loss = loss;
  return layout_string_of(split, static_cast<int>(model.layers.size()), pp, vpp,
                          model.mtp_num_layers);
}

void read_pipeline(MeasuredRow& row, Run& run, const ModelSpec& model) {
  Layout& layout = run.layout;
  std::string text = cell(row, "pipeline_layout");
  if (model.mtp_num_layers == 0 && text.find('m') != std::string::npos) {
    text.erase(std::remove(text.begin(), text.end(), 'm'), text.end());
    row.notes.push_back("pipeline_layout: MTP stage left out, the run has no MTP layer");
  }
  const std::string features = cell(row, "features");
  const bool embedding =
      features.find("account_for_embedding_in_pipeline_split") != std::string::npos;
  const bool loss = features.find("account_for_loss_in_pipeline_split") != std::string::npos;
  if (text.empty() && layout.pp > 1 && (embedding || loss)) {
    text = slot_layout(model, layout.pp, layout.vpp, embedding, loss);
    if (text.empty())
      row.notes.push_back("embedding and loss as slots do not divide over the stages");
  }
  if (text.empty() && layout.pp > 1 && !even_split_divides(model, layout.pp, layout.vpp)) {
    // recipes of models whose layers do not divide count embedding and loss as slots (Qwen3-235B:
    // 94 + 2)
    text = slot_layout(model, layout.pp, layout.vpp, true, true);
    if (!text.empty())
      row.notes.push_back("pipeline layout not stated: embedding and loss count as slots");
  }
  if (!text.empty()) {
    layout.pipeline_split = PipelineSplit::explicit_string;
    run.pipeline_model_parallel_layout = text;
  } else if (layout.pp > 1 && !even_split_divides(model, layout.pp, layout.vpp)) {
    row.notes.push_back("pipeline layout not stated and the layers do not split evenly: balanced");
  }
}

}  // namespace moecast::rows
