// The small documents: problems of an input, an imported model, a validation.
#include <cmath>
#include <cstdint>

#include "report/report.hpp"

namespace moecast {
namespace {

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json layer_counts(const ModelSpec& model) {
  int dense = 0, moe = 0;
  for (const LayerKind& layer : model.layers) {
    dense += layer.ffn == FfnKind::dense;
    moe += layer.ffn == FfnKind::moe;
  }
  return {{"total", model.layers.size()},
          {"dense", dense},
          {"moe", moe},
          {"mtp", model.mtp_num_layers}};
}

}  // namespace

Json error_json(const Diagnostics& problems) {
  Json errors = Json::array();
  for (const Diagnostic& d : problems) {
    errors.push_back({{"file", d.file},
                      {"line", d.line},
                      {"column", d.column},
                      {"key", d.key},
                      {"message", d.message},
                      {"hint", d.hint}});
  }
  return {{"schema", "moecast/error@1"}, {"errors", errors}};
}

Json imported_model_json(const ModelSpec& model, int seq_length) {
  const ParamCount params = count_params(model);
  return {{"schema", "moecast/model@1"},
          {"name", model.name},
          {"architecture", model.architecture},
          {"params",
           {{"total", whole_number(params.total)},
            {"active", whole_number(params.active)},
            {"active_without_input_embedding", whole_number(params.active_without_input_embedding)},
            {"mtp", whole_number(params.mtp)}}},
          {"seq_length", seq_length},
          {"model_flops_per_token", model_flops_per_token(model, seq_length, 1)},
          {"layers", layer_counts(model)},
          {"warnings", model.warnings}};
}

namespace {

void add_figure(Json& row, const char* name, const std::optional<ValidatedRow::Figure>& figure) {
  if (figure) row[name] = {{"predicted", figure->predicted}, {"measured", figure->measured}};
}

}  // namespace

Json validation_json(const Validation& validation) {
  Json rows = Json::array();
  for (const ValidatedRow& row : validation.rows) {
    rows.push_back({{"id", row.id},
                    {"predicted_tflops_per_gpu", or_null(row.predicted_tflops_per_gpu)},
                    {"measured_tflops_per_gpu", or_null(row.measured_tflops_per_gpu)},
                    {"error_pct", or_null(row.error_pct)},
                    {"predicted_peak_gib", or_null(row.predicted_peak_gib)},
                    {"measured_peak_gib", or_null(row.measured_peak_gib)},
                    {"memory_error_pct", or_null(row.memory_error_pct)},
                    {"status", row.status},
                    {"detail", row.detail}});
    if (!row.kernels.empty()) rows.back()["kernels"] = row.kernels;
    add_figure(rows.back(), "at_rest_gib", row.at_rest_gib);
    add_figure(rows.back(), "reserved_gib", row.reserved_gib);
    add_figure(rows.back(), "params_rank", row.params_rank);
  }
  Json document{{"schema", "moecast/validate@1"},
                {"rows", rows},
                {"summary", validation.summary},
                {"groups", validation.groups.is_null() ? Json::array() : validation.groups}};
  if (!validation.cross_validation.is_null())
    document["cross_validation"] = validation.cross_validation;
  if (!validation.kernel_classes.is_null()) document["kernel_classes"] = validation.kernel_classes;
  return document;
}

Json whole_number(double count) { return static_cast<std::int64_t>(std::llround(count)); }

std::string dump(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string line_of(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace moecast
