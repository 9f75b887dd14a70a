#include "topology/system_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/document.hpp"
#include "topology/system.hpp"

namespace moecast {

const std::vector<SystemFigure>& system_figures() {
  using S = System&;
  using enum SystemFigure::Kind;
  constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6, kMib = 1024.0 * 1024.0;
  static const std::vector<SystemFigure> table{
      {"gpu", "compute_capability", positive, 1,
       [](S s) -> double& { return s.gpu.compute_capability; }},
      {"gpu", "sms", count, 1, nullptr, [](S s) -> int& { return s.gpu.sms; }},
      {"gpu", "max_sm_clock_ghz", positive, 1,
       [](S s) -> double& { return s.gpu.max_sm_clock_ghz; }},
      {"gpu", "bf16_dense_tflops", positive, kTera,
       [](S s) -> double& { return s.gpu.bf16.value; }},
      {"gpu", "fp8_dense_tflops", positive, kTera, [](S s) -> double& { return s.gpu.fp8.value; }},
      {"gpu", "fp4_dense_tflops", not_negative, kTera,
       [](S s) -> double& { return s.gpu.fp4.value; }},
      {"gpu", "tf32_dense_tflops", positive, kTera,
       [](S s) -> double& { return s.gpu.tf32.value; }},
      {"gpu", "hbm_capacity_gib", positive, kBytesPerGib,
       [](S s) -> double& { return s.gpu.hbm_capacity.value; }},
      {"gpu", "hbm_bandwidth_gb_per_s", positive, kGiga,
       [](S s) -> double& { return s.gpu.hbm_bandwidth.value; }},
      {"gpu", "l2_mib", positive, kMib, [](S s) -> double& { return s.gpu.l2.value; }},
      {"node", "gpus", count, 1, nullptr, [](S s) -> int& { return s.gpus_per_node; }},
      {"node", "host_memory_gib", positive, kBytesPerGib,
       [](S s) -> double& { return s.host_memory.value; }},
      {"node", "host_memory_bandwidth_gb_per_s", positive, kGiga,
       [](S s) -> double& { return s.host_memory_bandwidth.value; }},
      {"node", "host_link_bandwidth_gb_per_s_per_direction", positive, kGiga,
       [](S s) -> double& { return s.host_link_per_direction.value; }},
      {"node", "host_link_latency_us", positive, kMicro,
       [](S s) -> double& { return s.host_link_latency.value; }},
      {"fabric", "gpus_per_nvlink_domain", count, 1, nullptr,
       [](S s) -> int& { return s.gpus_per_nvlink_domain; }},
      {"fabric", "nvlink_bandwidth_gb_per_s_per_direction", positive, kGiga,
       [](S s) -> double& { return s.nvlink_per_direction.value; }},
      {"fabric", "nvlink_latency_us", positive, kMicro,
       [](S s) -> double& { return s.nvlink_latency.value; }},
      {"fabric", "nic_bandwidth_gb_per_s", positive, kGiga,
       [](S s) -> double& { return s.nic_per_gpu.value; }},
      {"fabric", "nic_latency_us", positive, kMicro,
       [](S s) -> double& { return s.nic_latency.value; }},
      {"fabric", "fabric_switch_latency_us", not_negative, kMicro,
       [](S s) -> double& { return s.fabric_switch_latency.value; }}};
  return table;
}

namespace {

using Tree = nlohmann::ordered_json;

const SystemFigure* find_figure(std::string_view section, std::string_view key) {
  const auto& table = system_figures();
  const auto found = std::find_if(table.begin(), table.end(), [&](const SystemFigure& f) {
    return f.key == key && (section.empty() || f.section == section);
  });
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> figure_names() {
  std::vector<std::string> names;
  for (const SystemFigure& f : system_figures()) names.emplace_back(f.key);
  return names;
}

/// A number, or the system's own times the number after the x.
std::optional<double> amount(const Tree& value, double own) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = value.get<std::string>();
  if (text.size() < 2 || text[0] != 'x') return std::nullopt;
  char* end = nullptr;
  const double factor = std::strtod(text.c_str() + 1, &end);
  return *end == '\0' ? std::optional(own * factor) : std::nullopt;
}

std::string replace(const SystemFigure& f, const Tree& value, System& system) {
  constexpr double kMostCount = 100'000;
  const bool is_count = f.kind == SystemFigure::Kind::count;
  const double own = is_count ? f.whole(system) : f.value(system) / f.unit;
  const std::optional<double> wanted = amount(value, own);
  if (!wanted || !std::isfinite(*wanted)) return "must be a number, or x and a factor, such as x2";
  if (is_count) {
    if (*wanted < 1 || *wanted > kMostCount || *wanted != std::floor(*wanted))
      return fmt::format("{:g} is not a whole number between 1 and {:g}", *wanted, kMostCount);
    f.whole(system) = static_cast<int>(*wanted);
    return "";
  }
  const bool zero_allowed = f.kind == SystemFigure::Kind::not_negative;
  if (*wanted < 0 || (*wanted == 0 && !zero_allowed))
    return fmt::format("{:g} is not {}", *wanted, zero_allowed ? "0 or more" : "above 0");
  f.value(system) = *wanted * f.unit;
  return "";
}

Diagnostic of_override(const std::string& key, std::string message, std::string hint = "") {
  return {"",
          0,
          0,
          "cluster.system_overrides" + (key.empty() ? "" : "." + key),
          std::move(message),
          std::move(hint)};
}

}  // namespace

Diagnostics override_figures(System& system, const Tree& overrides) {
  Diagnostics problems;
  const auto set = [&](std::string_view section, const std::string& key, const Tree& value) {
    const SystemFigure* figure = find_figure(section, key);
    const std::string wrong =
        figure == nullptr ? "is no figure of a system" : replace(*figure, value, system);
    if (!wrong.empty()) {
      problems.push_back(
          of_override(key, wrong, figure == nullptr ? suggestion(key, figure_names()) : ""));
    }
  };
  for (const auto& [key, value] : overrides.items()) {
    const std::size_t dot = key.find('.');
    if (value.is_object()) {
      for (const auto& [leaf, inner] : value.items()) set(key, leaf, inner);
    } else if (dot != std::string::npos) {
      set(key.substr(0, dot), key.substr(dot + 1), value);
    } else {
      set("", key, value);
    }
  }
  if (const std::string wrong = node_shape_problem(system); problems.empty() && !wrong.empty())
    problems.push_back(of_override("", wrong));
  return problems;
}

}  // namespace moecast
