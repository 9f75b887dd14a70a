#include "topology/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "core/document.hpp"
#include "topology/profile.hpp"
#include "topology/sourced_values.hpp"

namespace moecast {
namespace {

namespace fs = std::filesystem;

fs::path systems_dir() { return data_dir() / "hwdb" / "systems"; }

Gpu read_gpu(const Document& doc, const Node& node, const std::string& path,
             Diagnostics& problems) {
  SourcedValues values(doc, node, path, problems);
  Gpu gpu;
  gpu.name = values.plain_text("name");
  gpu.compute_capability = values.positive("compute_capability");
  gpu.sms = values.count("sms");
  gpu.max_sm_clock_ghz = values.positive("max_sm_clock_ghz");
  gpu.bf16 = teraflops(values.positive("bf16_dense_tflops"));
  gpu.fp8 = teraflops(values.positive("fp8_dense_tflops"));
  gpu.fp4 = teraflops(values.not_negative("fp4_dense_tflops"));
  gpu.tf32 = teraflops(values.positive("tf32_dense_tflops"));
  gpu.hbm_capacity = gibibytes(values.positive("hbm_capacity_gib"));
  gpu.hbm_bandwidth = gigabytes_per_second(values.positive("hbm_bandwidth_gb_per_s"));
  gpu.l2 = mebibytes(values.positive("l2_mib"));
  values.finish();
  return gpu;
}

void read_node(SourcedValues values, System& s) {
  s.gpus_per_node = values.count("gpus");
  s.grace = values.flag("grace");
  s.host_cpu = values.text("host_cpu");
  s.host_memory = gibibytes(values.positive("host_memory_gib"));
  s.host_memory_bandwidth = gigabytes_per_second(values.positive("host_memory_bandwidth_gb_per_s"));
  s.host_link_per_direction =
      gigabytes_per_second(values.positive("host_link_bandwidth_gb_per_s_per_direction"));
  s.host_link_latency = microseconds(values.positive("host_link_latency_us"));
  values.finish();
}

void read_fabric(SourcedValues values, System& s) {
  s.gpus_per_nvlink_domain = values.count("gpus_per_nvlink_domain");
  s.nvlink_per_direction =
      gigabytes_per_second(values.positive("nvlink_bandwidth_gb_per_s_per_direction"));
  s.nvlink_latency = microseconds(values.positive("nvlink_latency_us"));
  s.nvls = values.flag("nvls");
  s.nic_per_gpu = gigabytes_per_second(values.positive("nic_bandwidth_gb_per_s"));
  s.nic_latency = microseconds(values.positive("nic_latency_us"));
  s.fabric_switch_latency = microseconds(values.not_negative("fabric_switch_latency_us"));
  values.finish();
}

/// `path` is "" for a system file and "system" for one that a profile embeds.
Result<System> read_system(const Document& doc, const Node& node, const std::string& path) {
  Diagnostics problems;
  if (path.empty()) check_schema(doc, "system", 1, problems);
  MapReader reader(doc, node, path, problems);
  reader.ignore("schema");
  System s;
  s.path = doc.file;
  s.name = reader.required_text("name");
  if (const Node* gpu = reader.require("gpu")) {
    s.gpu = read_gpu(doc, *gpu, reader.path_of("gpu"), problems);
  }
  if (const Node* host = reader.require("node")) {
    read_node({doc, *host, reader.path_of("node"), problems}, s);
  }
  const Node* fabric = reader.require("fabric");
  if (fabric) read_fabric({doc, *fabric, reader.path_of("fabric"), problems}, s);
  reader.finish();
  if (problems.empty()) {
    if (const std::string wrong = node_shape_problem(s); !wrong.empty()) {
      reader.complain(*fabric, "fabric.gpus_per_nvlink_domain", wrong);
    }
  }
  if (!problems.empty()) return problems;
  return s;
}

bool is_profile(const Document& doc) {
  const Node* schema = doc.root.find("schema");
  return schema != nullptr && schema->as_string().value_or("").starts_with("moecast/profile@");
}

/// The file of a shipped system or profile; else the path itself, taken from `folder` when it is
/// there.
std::string locate(const std::string& name_or_path, const fs::path& folder) {
  const std::vector<std::string> names = shipped_systems();
  if (std::find(names.begin(), names.end(), name_or_path) != names.end()) {
    return (systems_dir() / (name_or_path + ".yaml")).string();
  }
  if (const std::string profile = shipped_profile(name_or_path); !profile.empty()) return profile;
  std::error_code ignored;
  const fs::path beside = folder / name_or_path;
  return fs::exists(beside, ignored) ? beside.string() : name_or_path;
}

Diagnostic unknown_system(const std::string& name, Diagnostic where) {
  where.message = fmt::format("no system or file is named '{}'", name);
  where.hint = suggestion(name, shipped_systems());
  return where;
}

Result<System> system_of_profile(const Document& doc) {
  Diagnostics problems;
  check_schema(doc, "profile", 1, problems);
  MapReader reader(doc, doc.root, "", problems);
  const Node* system = reader.require("system");
  if (!problems.empty()) return problems;
  if (system->is_map()) return read_system(doc, *system, "system");

  const std::string name = reader.required_text("system");
  if (!problems.empty()) return problems;
  const std::string file = locate(name, fs::path(doc.file).parent_path());
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    return unknown_system(name, doc.problem(system->mark, "system", ""));
  }
  auto named = read_document(file);
  if (!named) return named.problems();
  return read_system(named.value(), named.value().root, "");
}

}  // namespace

std::string node_shape_problem(const System& system) {
  const int node = system.gpus_per_node, domain = system.gpus_per_nvlink_domain;
  if (node >= 1 && domain >= 1 && domain % node == 0) return "";
  return fmt::format("an NVLink domain of {} GPUs does not hold whole nodes of {}", domain, node);
}

Result<System> load_system(const std::string& name_or_path) {
  const std::string file = locate(name_or_path, "");
  std::error_code ignored;
  if (name_or_path.empty() || !fs::exists(file, ignored)) {
    return unknown_system(name_or_path, {"", 0, 0, "cluster.system", "", ""});
  }
  auto doc = read_document(file);
  if (!doc) return doc.problems();
  if (is_profile(doc.value())) return system_of_profile(doc.value());
  return read_system(doc.value(), doc.value().root, "");
}

std::vector<std::string> shipped_systems() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(systems_dir(), ignored)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

FlopsPerSecond peak_flops(const Gpu& gpu, Precision p) {
  switch (p) {
    case Precision::bf16:
      return gpu.bf16;
    case Precision::nvfp4:
      return gpu.fp4;
    case Precision::fp8_delayed:
    case Precision::fp8_tensorwise:
    case Precision::fp8_blockwise:
    case Precision::mxfp8:
      return gpu.fp8;
  }
  return {};
}

}  // namespace moecast
