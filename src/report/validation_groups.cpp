/// A/B groups: does a forecast see which way one knob moves the step?
#include <cmath>

#include "report/rows.hpp"
#include "report/validation_summary.hpp"

namespace moecast {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNoise = 0.03;    ///< measured effects up to here have no sign to get right
constexpr double kUnmoved = 1e-3;  ///< forecasts that differ by less do not claim a sign

/// Work per token is the same: then tokens/s compare as TFLOPS do.
bool same_work(const MeasuredRow& a, const MeasuredRow& b) {
  for (const char* column :
       {"model", "seq_len", "mtp_layers", "layers_override", "model_overrides"}) {
    if (rows::cell(a, column) != rows::cell(b, column)) return false;
  }
  return true;
}

std::optional<double> measured_ratio(const MeasuredRow& a, const MeasuredRow& b) {
  if (a.tflops_per_gpu && b.tflops_per_gpu) return *b.tflops_per_gpu / *a.tflops_per_gpu;
  const auto before = rows::number(rows::cell(a, "tokens_per_s_per_gpu"));
  const auto after = rows::number(rows::cell(b, "tokens_per_s_per_gpu"));
  if (!same_work(a, b) || !before || !after || *before <= 0 || *after <= 0) return std::nullopt;
  return *after / *before;
}

std::optional<double> predicted_ratio(const ValidatedRow& a, const ValidatedRow& b) {
  if (!a.predicted_tflops_per_gpu || !b.predicted_tflops_per_gpu ||
      *a.predicted_tflops_per_gpu <= 0)
    return std::nullopt;
  return *b.predicted_tflops_per_gpu / *a.predicted_tflops_per_gpu;
}

Json pair(const ValidatedRow& a, const ValidatedRow& b, double measured) {
  const auto predicted = predicted_ratio(a, b);
  Json out{{"a", a.id},
           {"b", b.id},
           {"measured_ratio", measured},
           {"predicted_ratio", nullptr},
           {"sign_right", nullptr}};
  if (predicted) out["predicted_ratio"] = *predicted;
  if (std::abs(measured - 1.0) > kNoise) {
    out["sign_right"] = predicted && std::abs(*predicted - 1.0) > kUnmoved &&
                        (*predicted - 1.0) * (measured - 1.0) > 0;
  }
  return out;
}

}  // namespace

Json ab_groups(const std::vector<MeasuredRow>& rows, const std::vector<ValidatedRow>& validated) {
  std::vector<std::string> names;  // in file order
  std::map<std::string, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string name = rows::cell(rows[i], "ab_group");
    if (name.empty()) continue;
    if (members[name].empty()) names.push_back(name);
    members[name].push_back(i);
  }
  Json groups = Json::array();
  for (const std::string& name : names) {
    Json pairs = Json::array();
    const auto& group = members[name];
    for (std::size_t a = 0; a < group.size(); ++a) {
      for (std::size_t b = a + 1; b < group.size(); ++b) {
        if (const auto ratio = measured_ratio(rows[group[a]], rows[group[b]])) {
          pairs.push_back(pair(validated[group[a]], validated[group[b]], *ratio));
        }
      }
    }
    if (!pairs.empty()) groups.push_back({{"ab_group", name}, {"pairs", std::move(pairs)}});
  }
  return groups;
}

}  // namespace moecast
