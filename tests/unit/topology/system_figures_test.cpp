// Figures of a system that a run replaces.
#include "topology/system_figures.hpp"

#include <string>

#include "catch.hpp"
#include "core/document.hpp"
#include "moecast/cluster.hpp"

using namespace moecast;

namespace {

using Overrides = nlohmann::ordered_json;

System overridden(const Overrides& overrides) {
  System system = load_system("dgx-h100").take();
  const Diagnostics problems = override_figures(system, overrides);
  REQUIRE(problems.empty());
  return system;
}

std::string complaints(const Overrides& overrides) {
  System system = load_system("dgx-h100").take();
  std::string text;
  for (const Diagnostic& d : override_figures(system, overrides)) text += to_string(d) + "\n";
  return text;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every number of a hardware file is a figure that can be replaced, in its own unit") {
  const Document doc =
      read_document((data_dir() / "hwdb" / "systems" / "dgx-h100.yaml").string()).take();
  std::size_t numbers = 0;
  for (const char* section : {"gpu", "node", "fabric"}) {
    for (const Node::Entry& entry : doc.root.find(section)->entries) {
      const Node* value = entry.value.find("value");
      if (value == nullptr || !value->as_double()) continue;
      ++numbers;
      INFO(entry.key);
      const Overrides same{{std::string(section) + "." + entry.key, *value->as_double()}};
      System system = load_system("dgx-h100").take();
      CHECK(override_figures(system, same).empty());
    }
  }
  CHECK(numbers == system_figures().size());
}

TEST_CASE("a figure is replaced by a number in its unit, or scaled by x and a factor") {
  const System own = overridden(Overrides::object());
  const System absolute = overridden({{"nic_bandwidth_gb_per_s", 100}, {"hbm_capacity_gib", 141}});
  CHECK(absolute.nic_per_gpu.value == 100e9);
  CHECK(absolute.gpu.hbm_capacity.value == 141.0 * 1024 * 1024 * 1024);
  CHECK(absolute.gpu.bf16.value == own.gpu.bf16.value);
  const System scaled = overridden({{"fabric", {{"nic_bandwidth_gb_per_s", "x2"}}},
                                    {"gpu.bf16_dense_tflops", "x0.5"},
                                    {"gpus_per_nvlink_domain", "x4"}});
  CHECK_THAT(scaled.nic_per_gpu.value, WithinRel(2 * own.nic_per_gpu.value, 1e-12));
  CHECK_THAT(scaled.gpu.bf16.value, WithinRel(0.5 * own.gpu.bf16.value, 1e-12));
  CHECK(scaled.gpus_per_nvlink_domain == 32);
}

TEST_CASE("wrong figures are named with the nearest right one, all at once") {
  const std::string text = complaints({{"nic_bandwith_gb_per_s", 1},
                                       {"hbm_capacity_gib", 0},
                                       {"sms", 1.5},
                                       {"l2_mib", "2x"},
                                       {"gpus_per_nvlink_domain", true}});
  CHECK(has(text, "did you mean 'nic_bandwidth_gb_per_s'?"));
  CHECK(has(text, "cluster.system_overrides.hbm_capacity_gib: 0 is not above 0"));
  CHECK(has(text, "cluster.system_overrides.sms: 1.5 is not a whole number"));
  CHECK(has(text, "cluster.system_overrides.l2_mib: must be a number, or x and a factor"));
  CHECK(has(text, "cluster.system_overrides.gpus_per_nvlink_domain: must be"));
  CHECK(has(complaints({{"gpus_per_nvlink_domain", 12}}), "does not hold whole nodes of 8"));
  CHECK(has(complaints({{"node", {{"nic_latency_us", 1}}}}), "is no figure of a system"));
}
