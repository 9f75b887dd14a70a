#include <algorithm>
#include <filesystem>
#include <sstream>

#include "catch.hpp"
#include "core/document.hpp"
#include "moecast/cluster.hpp"
#include "temp_dir.hpp"

using namespace moecast;
using moecast::test::TempDir;

namespace {

std::string shipped_text(const std::string& name) {
  return test::read_file(data_dir() / "hwdb" / "systems" / (name + ".yaml"));
}

/// The first occurrence of `from` replaced.
std::string edited(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

bool reports(const Diagnostics& problems, const std::string& key, const std::string& message) {
  return std::any_of(problems.begin(), problems.end(), [&](const Diagnostic& d) {
    return d.key == key && d.message.find(message) != std::string::npos && d.line > 0;
  });
}

}  // namespace

TEST_CASE("the seven systems ship and load under their own names") {
  const std::vector<std::string> expected = {"dgx-b200", "dgx-b300",    "dgx-h100",   "dgx-h200",
                                             "dgx-h800", "gb200-nvl72", "gb300-nvl72"};
  CHECK(shipped_systems() == expected);
  for (const auto& name : expected) {
    const auto s = load_system(name);
    for (const auto& p : s.problems()) UNSCOPED_INFO(to_string(p));
    REQUIRE(s.ok());
    CHECK(s.value().name == name);
    CHECK(std::filesystem::exists(s.value().path));
  }
}

TEST_CASE("memory capacities are what CUDA can allocate, from nvidia-smi's MiB") {
  const auto mib = [](const char* name) {
    return in_mib(load_system(name).value().gpu.hbm_capacity);
  };
  CHECK_THAT(mib("dgx-h100"), WithinAbs(81559, 1));
  CHECK_THAT(mib("dgx-b200"), WithinAbs(183359 - 728, 2));
  CHECK_THAT(mib("gb200-nvl72"), WithinAbs(189471 - 742, 1));
  CHECK_THAT(mib("gb300-nvl72"), WithinAbs(284208 - 947, 1));
}

TEST_CASE("shipped figures are physically consistent") {
  for (const auto& name : shipped_systems()) {
    CAPTURE(name);
    const System s = load_system(name).value();
    const Gpu& g = s.gpu;
    CHECK_THAT(g.fp8 / g.bf16, WithinRel(2.0, 0.01));
    CHECK_THAT(g.bf16 / g.tf32, WithinRel(2.0, 0.01));
    // Tensor cores do 4096 (Hopper) or 8192 (Blackwell) dense BF16 FLOP per clock and SM.
    const double per_clock = g.compute_capability < 10 ? 4096 : 8192;
    CHECK(in_tflops(g.bf16) <= per_clock * g.sms * g.max_sm_clock_ghz * 1e-3);
    CHECK(in_tflops(g.bf16) >= 0.9 * per_clock * g.sms * g.max_sm_clock_ghz * 1e-3);
    CHECK(s.nvlink_per_direction > s.nic_per_gpu);
    CHECK(s.nic_latency > s.nvlink_latency);
    CHECK((g.fp4.value > 0) == (g.compute_capability >= 10));
    CHECK(s.grace == (s.gpus_per_nvlink_domain == 72));
    CHECK(s.gpus_per_node == (s.grace ? 4 : 8));
  }
}

TEST_CASE("FP8 recipes share the FP8 peak, and Hopper has no FP4") {
  const Gpu h100 = load_system("dgx-h100").value().gpu;
  CHECK_THAT(in_tflops(peak_flops(h100, Precision::bf16)), WithinRel(989.0, 1e-9));
  for (const auto p : {Precision::fp8_delayed, Precision::fp8_tensorwise, Precision::fp8_blockwise,
                       Precision::mxfp8}) {
    CHECK_THAT(in_tflops(peak_flops(h100, p)), WithinRel(1979.0, 1e-9));
  }
  CHECK(peak_flops(h100, Precision::nvfp4) == FlopsPerSecond());
  const Gpu gb300 = load_system("gb300-nvl72").value().gpu;
  CHECK_THAT(in_tflops(peak_flops(gb300, Precision::nvfp4)), WithinRel(15000.0, 1e-9));
}

TEST_CASE("an unknown system name is answered with the nearest one") {
  const auto s = load_system("dgx-h10");
  REQUIRE_FALSE(s.ok());
  CHECK(s.problems()[0].key == "cluster.system");
  CHECK(s.problems()[0].hint.find("dgx-h100") != std::string::npos);
  CHECK_FALSE(load_system("").ok());
  CHECK_FALSE(load_system("/").ok());
}

TEST_CASE("every problem of a system file is reported at once, with its place") {
  const TempDir dir;
  std::string text = shipped_text("dgx-h100");
  text = edited(text, "sms:\n    value: 132", "sms:\n    value: 132.5");
  text = edited(text, "  bf16_dense_tflops:", "  bf16_tflops:");
  text = edited(text, "hbm_capacity_gib:\n    value: 79.6475", "hbm_capacity_gib:\n    value: -1");
  text = edited(text, "    kind: datasheet\n    source: \"NVIDIA H100 white paper\"\n", "");
  text = edited(text, "nic_latency_us:\n    value: 4.66\n    kind: derived",
                "nic_latency_us:\n    value: 4.66\n    kind: guessed");
  const Diagnostics d = load_system(dir.file("broken.yaml", text)).problems();
  CHECK(reports(d, "gpu.sms.value", "expected a whole number"));
  CHECK(reports(d, "gpu.bf16_dense_tflops", "required"));
  CHECK(reports(d, "gpu.bf16_tflops", "unknown key"));
  CHECK(reports(d, "gpu.hbm_capacity_gib.value", "not above 0"));
  CHECK(reports(d, "gpu.l2_mib.source", "needs a source"));
  CHECK(reports(d, "gpu.l2_mib.kind", "required"));
  CHECK(reports(d, "fabric.nic_latency_us.kind", "'guessed'"));
  CHECK(d.size() == 7);
}

TEST_CASE("a bare value, a blank source and a domain of broken nodes are refused") {
  const TempDir dir;
  const std::string text = shipped_text("dgx-h100");
  CHECK(reports(load_system(dir.file("bare.yaml",
                                     edited(text, "  nvls:\n    value: true\n    kind: datasheet\n",
                                            "  nvls: true\n  x:\n")))
                    .problems(),
                "fabric.nvls", "no source"));
  CHECK(reports(
      load_system(dir.file("blank.yaml", edited(text, "\"NVIDIA H100 white paper\"", "\" \"")))
          .problems(),
      "gpu.l2_mib.source", "needs a source"));
  CHECK(reports(
      load_system(dir.file("nodes.yaml", edited(text, "gpus_per_nvlink_domain:\n    value: 8",
                                                "gpus_per_nvlink_domain:\n    value: 12")))
          .problems(),
      "fabric.gpus_per_nvlink_domain", "whole nodes"));
}

TEST_CASE("a profile gives the system that it names or embeds") {
  const TempDir dir;
  const auto named =
      load_system(dir.file("named.yaml", "schema: moecast/profile@1\nsystem: dgx-h200\n"));
  REQUIRE(named.ok());
  CHECK(named.value().name == "dgx-h200");

  REQUIRE_FALSE(
      dir.file("mine.yaml", edited(shipped_text("dgx-b200"), "name: dgx-b200", "name: mine"))
          .empty());
  const auto beside =
      load_system(dir.file("beside.yaml", "schema: moecast/profile@1\nsystem: mine.yaml\n"));
  REQUIRE(beside.ok());
  CHECK(beside.value().name == "mine");

  std::istringstream lines(shipped_text("gb200-nvl72"));
  std::string embedded = "schema: moecast/profile@1\nsystem:\n", line;
  std::getline(lines, line);  // the schema line
  while (std::getline(lines, line)) embedded += "  " + line + "\n";
  const auto inside = load_system(dir.file("inside.yaml", embedded));
  REQUIRE(inside.ok());
  CHECK(inside.value().gpus_per_nvlink_domain == 72);
  const Diagnostics d =
      load_system(dir.file("bad.yaml", edited(embedded, "value: 152", "value: many"))).problems();
  CHECK(reports(d, "system.gpu.sms.value", "expected a whole number"));
}

TEST_CASE("a profile that names itself, nothing, or an unknown system is refused") {
  const TempDir dir;
  const std::string head = "schema: moecast/profile@1\n";
  CHECK(reports(load_system(dir.file("self.yaml", head + "system: self.yaml\n")).problems(),
                "schema", "another kind of file"));
  CHECK(reports(load_system(dir.file("none.yaml", head)).problems(), "system", "required"));
  CHECK(reports(load_system(dir.file("odd.yaml", head + "system: dgx-h1000\n")).problems(),
                "system", "dgx-h1000"));
}
