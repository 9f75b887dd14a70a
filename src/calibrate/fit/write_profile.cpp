#include "calibrate/fit/write_profile.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "calibrate/fit/least_squares.hpp"

namespace moecast {
namespace {

using Json = nlohmann::ordered_json;

/// A double-quoted YAML scalar; JSON's escapes are YAML's.
std::string quoted(const std::string& text) { return Json(text).dump(); }

std::string leaf(const FittedValue& v, const CurveFit& curve, const std::string& source) {
  const std::string residual =
      curve.held_out.n > 0 ? fmt::format(", residual: {:.3g}", curve.held_out.median / 100) : "";
  return fmt::format("{{value: {:.4g}, sd: {:.2g}{}, kind: measured, source: {}}}", v.value, v.sd,
                     residual, quoted(source));
}

/// Nested maps in the order of the parameter table, a leaf a line.
struct Section {
  std::string name, leaf;
  std::vector<Section> children;

  Section& at(const std::string& wanted) {
    for (Section& child : children)
      if (child.name == wanted) return child;
    return children.emplace_back(Section{wanted, "", {}});
  }
  [[nodiscard]] std::string text(int indent) const {
    std::string out;
    for (const Section& child : children) {
      const std::string value = child.leaf.empty() ? "" : " " + child.leaf;
      out += fmt::format("{:{}}{}:{}\n", "", indent, child.name, value) + child.text(indent + 2);
    }
    return out;
  }
};

std::string sections(const std::map<std::string, std::string>& leaves) {
  Section root;
  for (const Parameter& p : parameter_table()) {
    const auto found = leaves.find(p.path);
    if (found == leaves.end()) continue;
    Section* at = &root;
    for (std::size_t from = 0; from <= p.path.size();) {
      const std::size_t dot = std::min(p.path.find('.', from), p.path.size());
      at = &at->at(p.path.substr(from, dot - from));
      from = dot + 1;
    }
    at->leaf = found->second;
  }
  return root.text(0);
}

std::string device_lines(const SampleDevice& d) {
  std::string out = fmt::format("device: {{name: {}", quoted(d.name));
  for (const auto& [name, value] : {std::pair{"driver", d.driver},
                                    {"cuda", d.cuda},
                                    {"cublaslt", d.cublaslt},
                                    {"cudnn", d.cudnn},
                                    {"nccl", d.nccl},
                                    {"date", d.date}})
    out += fmt::format(", {}: {}", name, quoted(value));
  return out + fmt::format(", gpus: {}, power_limit_w: {}}}\n", d.gpus, d.power_limit_w);
}

std::string curve_line(const CurveFit& c) {
  std::string out = fmt::format(
      "  {}: {{kernels: {}, held_out_median_pct: {:.3g}, held_out_p90_pct: {:.3g}, "
      "held_out_bias_pct: {:.3g}, noise_pct: {:.3g}, prior_median_pct: {:.3g}",
      quoted(c.name), c.points, c.held_out.median, c.held_out.p90, c.held_out.bias, c.noise_pct,
      c.prior.median);
  if (!c.refused.empty()) out += fmt::format(", refused: {}", quoted(c.refused));
  return out + "}\n";
}

/// "gemm fp8 wgrad": what makes one line of a comparison.
std::string line_name(const Sample& s) {
  std::string name = s.cls;
  for (const char* key : {"precision", "pass", "backend"}) {
    const auto found = s.keys.find(key);
    if (found == s.keys.end() || !std::holds_alternative<std::string>(found->second)) continue;
    const auto& word = std::get<std::string>(found->second);
    if (word != "bf16") name += ' ' + word;
  }
  if (s.cls == "grouped_gemm") name += ' ' + s.backend;
  return name;
}

}  // namespace

std::string profile_yaml(const ProfileFit& fit, const Samples& samples, const std::string& extends,
                         const std::string& system) {
  std::map<std::string, std::string> leaves;
  std::string curves = "curves:\n";
  const std::string source =
      fmt::format("moecast calibrate on {}, {}", samples.device.name, samples.device.date);
  for (const CurveFit& c : fit.curves) {
    curves += curve_line(c);
    for (const FittedValue& v : c.values) leaves[v.path] = leaf(v, c, source);
  }
  return "schema: moecast/profile@1\n"
         "# Written by moecast calibrate; refit with --fit from the samples beside it.\n"
         "extends: " +
         extends + "\nsystem: " + system + "\n" + device_lines(samples.device) + curves +
         sections(leaves);
}

Json fit_json(const ProfileFit& fit, const Samples& samples) {
  Json out{{"schema", "moecast/calibrate@1"},
           {"device", samples.device.name},
           {"samples", samples.samples.size()},
           {"curves", Json::array()},
           {"ignored", fit.ignored}};
  for (const CurveFit& c : fit.curves) {
    Json one{{"name", c.name},
             {"kernels", c.points},
             {"accepted", c.refused.empty()},
             {"refused", c.refused},
             {"held_out_median_pct", c.held_out.median},
             {"held_out_p90_pct", c.held_out.p90},
             {"held_out_bias_pct", c.held_out.bias},
             {"noise_pct", c.noise_pct},
             {"prior_median_pct", c.prior.median},
             {"prior_bias_pct", c.prior.bias},
             {"parameters", Json::object()}};
    for (const FittedValue& v : c.values)
      one["parameters"][v.path] = {{"value", v.value}, {"sd", v.sd}};
    out["curves"].push_back(one);
  }
  return out;
}

std::vector<ClassComparison> compare_with(const Samples& samples, const System& system,
                                          const Profile& profile) {
  struct Line {
    std::vector<double> here, there, ratio;
  };
  std::map<std::string, Line> lines;
  for (const FitPoint& p : fit_points(samples, system)) {
    const KernelPrice price = p.call.price(profile, system);
    const double limit_us = price.fraction_of_limit * in_us(price.time);
    Line& line = lines[line_name(*p.sample)];
    line.here.push_back(limit_us / p.measured_us);
    line.there.push_back(price.fraction_of_limit);
    line.ratio.push_back(p.measured_us / in_us(price.time));
  }
  std::vector<ClassComparison> out;
  for (const auto& [name, line] : lines) {
    out.push_back({name, static_cast<int>(line.here.size()), quantile(line.here, 0.5),
                   quantile(line.here, 1), quantile(line.there, 0.5), quantile(line.ratio, 0.5)});
  }
  return out;
}

}  // namespace moecast
