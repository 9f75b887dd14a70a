// Does a kernel named by its keys cost what its formula says, and are wrong keys explained?
#include "moecast/kernel.hpp"

#include <cmath>

#include "catch.hpp"
#include "problem_of.hpp"
#include "topology/profile.hpp"

using namespace moecast;
using moecast::test::must;

namespace {

const System& h200() {
  static const System system = load_system("dgx-h200").take();
  return system;
}
const Profile& profile() {
  static const Profile p = load_profile("hopper").take();
  return p;
}

KernelPrice price(const std::string& cls, const KernelKeys& keys) {
  const auto call = KernelCall::make(cls, keys, h200());
  for (const Diagnostic& d : call.problems()) UNSCOPED_INFO(to_string(d));
  REQUIRE(call.ok());
  return call.value().price(profile(), h200());
}

}  // namespace

TEST_CASE("a GEMM is a kernel start and its tiles at the sustained rate, beside its operands") {
  // 64 x 128 tiles of 128 x 64 on 132 SMs: 62.06 waves, whose tail costs least of all tile shapes
  const GemmParameters& g = profile().calibration.gemm[0];
  const double waves = 64.0 * 128 / 132;
  const double tile = 2.0 * 128 * 64 * (8192 + g.k_half) / (989e12 * g.efficiency / 132);
  const double math = tile * (waves + g.wave_quantization * (63 - waves));
  const double stream = 3.0 * 8192 * 8192 * 2 / (4.8e12 * g.bandwidth_fraction);
  const double us = g.launch_us + 1e6 * std::hypot(math, stream);
  const KernelPrice p = price("gemm", {{"m", 8192.0}, {"n", 8192.0}, {"k", 8192.0}});
  CHECK_THAT(in_us(p.time), WithinRel(us, 1e-9));
  CHECK_THAT(p.tflops, WithinRel(2 * 8192.0 * 8192 * 8192 / us / 1e6, 1e-9));
  CHECK_THAT(p.fraction_of_limit, WithinRel(p.tflops / 989, 1e-9));
  CHECK(p.limit == "peak");
  CHECK(p.source.find("gemm.bf16.efficiency") != std::string::npos);
}

TEST_CASE("bus bandwidth counts what nccl-tests counts, and own parts cost more among few ranks") {
  const auto bus = [](double ranks) {
    return price("all_gather", {{"ranks", ranks}, {"bytes", 512.0 * 1024 * 1024}}).gb_per_s;
  };
  // nccl-tests on 2, 4 and 8 H200s (aiconfigurator, NCCL 2.29): 258, 317, 337 GB/s; these are
  // priors of every Hopper system
  CHECK_THAT(bus(2), WithinRel(258.0, 0.08));
  CHECK_THAT(bus(4), WithinRel(317.0, 0.08));
  CHECK_THAT(bus(8), WithinRel(337.0, 0.08));
}

TEST_CASE("every class can be priced from its required keys alone and stays under its limit") {
  const std::map<std::string, double> values = {
      {"m", 4096},    {"n", 4096},      {"k", 4096},        {"tokens", 8192}, {"experts", 8},
      {"topk", 2},    {"hidden", 4096}, {"seq", 4096},      {"heads", 32},    {"qk_dim", 128},
      {"rows", 8192}, {"cols", 4096},   {"bytes", 1 << 28}, {"ranks", 8}};
  CHECK(kernel_classes().size() > 20);
  for (const KernelClassInfo& info : kernel_classes()) {
    INFO(info.name);
    KernelKeys keys;
    for (const std::string& name : info.required) keys[name] = values.at(name);
    const KernelPrice p = price(info.name, keys);
    CHECK(p.time.value > 0);
    CHECK(p.fraction_of_limit > 0);
    CHECK(p.fraction_of_limit < 1);
    CHECK_FALSE(p.source.empty());
  }
}

TEST_CASE("fp32 doubles what streams, is Adam's own precision, and no GEMM's") {
  const KernelKeys shape = {{"rows", 65536.0}, {"cols", 8192.0}};
  KernelKeys fp32 = shape;
  fp32["precision"] = std::string("fp32");
  const double start = profile().calibration.stream[static_cast<int>(Stream::elementwise)].start_us;
  CHECK_THAT(in_us(price("residual", fp32).time) - start,
             WithinRel(2 * (in_us(price("residual", shape).time) - start), 1e-9));
  CHECK(price("adam", fp32).time == price("adam", shape).time);
  KernelKeys gemm = {{"m", 1.0}, {"n", 1.0}, {"k", 1.0}, {"precision", std::string("fp32")}};
  CHECK(KernelCall::make("gemm", gemm, h200()).problems().size() == 1);
}

TEST_CASE("every wrong key of a kernel is named, with the nearest right one") {
  const auto call = KernelCall::make(
      "gemm", {{"m", 0.5}, {"kk", 3.0}, {"pass", std::string("dgard")}, {"n", std::string("x")}},
      h200());
  REQUIRE_FALSE(call.ok());
  std::string all;
  for (const Diagnostic& d : call.problems()) all += to_string(d) + "\n";
  INFO(all);
  CHECK(call.problems().size() == 5);
  for (const char* part :
       {"m: 0.5 is out of range", "kk: gemm has no such key", "did you mean 'k'",
        "did you mean 'dgrad'", "n: 'x' is not a number", "k: gemm needs this key"})
    CHECK(all.find(part) != std::string::npos);
  const auto unknown = KernelCall::make("gem", {}, h200());
  REQUIRE(unknown.problems().size() == 1);
  CHECK(unknown.problems()[0].hint.find("'gemm'") != std::string::npos);
}

TEST_CASE("quantisation writes a transposed copy on Hopper only, as the estimate counts it") {
  // per tensor: amax read 2, cast read 2, and one or two copies of 1 byte
  const KernelKeys keys = {{"rows", 4096.0}, {"cols", 7168.0}, {"precision", "fp8_tensorwise"}};
  const double elements = 4096.0 * 7168;
  for (const auto& [name, bytes] : {std::pair{"dgx-h100", 6.0}, {"dgx-b200", 5.0}}) {
    const System system = must(load_system(name));
    const Profile profile = must(load_profile(name));
    const KernelPrice price =
        must(KernelCall::make("quantize", keys, system)).price(profile, system);
    CHECK_THAT(price.gb_per_s * 1e9 * price.time.value / elements,
               Catch::Matchers::WithinRel(bytes, 1e-9));
  }
}
