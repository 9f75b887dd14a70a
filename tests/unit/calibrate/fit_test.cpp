// Do the fits find the parameters that made the samples, and say so when they cannot?
#include "calibrate/fit/fit_profile.hpp"

#include <cmath>
#include <random>
#include <string_view>

#include <fmt/format.h>

#include "calibrate/fit/least_squares.hpp"
#include "calibrate/fit/write_profile.hpp"
#include "catch.hpp"
#include "temp_dir.hpp"

using namespace moecast;
using moecast::test::TempDir;

namespace {

const System& h200() {
  static const System system = load_system("dgx-h200").take();
  return system;
}
const Profile& hopper() {
  static const Profile profile = load_profile("hopper").take();
  return profile;
}

double& parameter(Calibration& c, const std::string& path) {
  for (const Parameter& p : parameter_table())
    if (p.path == path) return p.in(c);
  throw std::logic_error(path);
}

double fitted(const ProfileFit& fit, const std::string& path) {
  Calibration c = fit.profile.calibration;
  return parameter(c, path);
}

/// Times of `c` with log-normal noise.
class Maker {
 public:
  Maker(Calibration c, double noise) : c_(std::move(c)), noise_(0, noise) {
    samples.device.name = h200().gpu.name;
    samples.device.sms = 132;
  }
  void add(const std::string& cls, const KernelKeys& keys, const std::string& backend = "x") {
    Sample s;
    s.cls = cls;
    s.keys = keys;
    s.backend = backend;
    s.spread_pct = 1;
    const auto call = KernelCall::make(cls, keys, h200());
    REQUIRE(call.ok());
    s.median_us = in_us(call.value().time(c_, h200())) * std::exp(noise_(random_));
    samples.samples.push_back(s);
  }
  Samples samples;

 private:
  Calibration c_;
  std::mt19937 random_{7};
  std::normal_distribution<double> noise_;
};

void add_gemms(Maker& make) {
  for (const double m : {256.0, 1024.0, 2560.0, 4096.0, 8192.0, 16384.0}) {
    for (const double n : {512.0, 2048.0, 5120.0, 7168.0}) {
      for (const double k : {512.0, 1536.0, 4096.0}) {
        for (const char* pass : {"forward", "dgrad", "wgrad"})
          make.add("gemm", {{"m", m}, {"n", n}, {"k", k}, {"pass", std::string(pass)}});
      }
    }
  }
}

const CurveFit& curve(const ProfileFit& fit, std::string_view name) {
  for (const CurveFit& c : fit.curves)
    if (c.name == name) return c;
  throw std::logic_error(fmt::format("no curve {}", name));
}

}  // namespace

TEST_CASE("a fit recovers the GEMM parameters behind noisy samples, whatever its prior") {
  Calibration truth = hopper().calibration;
  parameter(truth, "gemm.bf16.efficiency") = 0.68;
  parameter(truth, "gemm.bf16.k_half") = 150;
  parameter(truth, "gemm.bf16.launch_us") = 3.1;
  parameter(truth, "gemm.bf16.wgrad_ratio") = 0.9;
  parameter(truth, "gemm.bf16.bandwidth_fraction") = 0.62;
  Maker make(truth, 0.02);
  add_gemms(make);
  const ProfileFit fit = fit_profile(make.samples, h200(), hopper());
  CHECK_THAT(fitted(fit, "gemm.bf16.efficiency"), WithinRel(0.68, 0.02));
  CHECK_THAT(fitted(fit, "gemm.bf16.k_half"), WithinRel(150.0, 0.15));
  CHECK_THAT(fitted(fit, "gemm.bf16.launch_us"), WithinRel(3.1, 0.1));
  CHECK_THAT(fitted(fit, "gemm.bf16.wgrad_ratio"), WithinRel(0.9, 0.02));
  CHECK_THAT(fitted(fit, "gemm.bf16.bandwidth_fraction"), WithinRel(0.62, 0.1));
  const CurveFit& gemm = curve(fit, "gemm.bf16");
  CHECK(gemm.refused.empty());
  // the median of |2 % normal noise| is 0.67 x 2 %
  CHECK_THAT(gemm.held_out.median, WithinRel(1.35, 0.35));
  CHECK(gemm.prior.median > 3 * gemm.held_out.median);
  CHECK(fit.profile.values.at("gemm.bf16.efficiency").kind == "measured");
  CHECK(fit.profile.values.at("gemm.fp8.efficiency").kind == "fitted");
}

TEST_CASE("one timing in twelve that is far off moves the fit by less than the noise") {
  Maker make(hopper().calibration, 0.02);
  add_gemms(make);
  const double clean = fitted(fit_profile(make.samples, h200(), hopper()), "gemm.bf16.efficiency");
  for (std::size_t i = 0; i < make.samples.samples.size(); i += 12)
    make.samples.samples[i].median_us *= 3;
  const double dirty = fitted(fit_profile(make.samples, h200(), hopper()), "gemm.bf16.efficiency");
  CHECK_THAT(dirty, WithinRel(clean, 0.02));
}

TEST_CASE("a fit of too few kernels is refused and the prior kept") {
  Calibration truth = hopper().calibration;
  parameter(truth, "gemm.bf16.efficiency") = 0.5;
  Maker make(truth, 0.01);
  for (const double m : {1024.0, 4096.0, 8192.0})
    make.add("gemm", {{"m", m}, {"n", 4096.0}, {"k", 4096.0}});
  const ProfileFit fit = fit_profile(make.samples, h200(), hopper());
  CHECK(curve(fit, "gemm.bf16").refused.find("at least 16") != std::string::npos);
  CHECK(fitted(fit, "gemm.bf16.efficiency") == hopper().calibration.gemm[0].efficiency);
}

TEST_CASE("a fit that misses the samples it has not seen by twice the noise floor is refused") {
  Maker make(hopper().calibration, 0.4);
  add_gemms(make);
  const ProfileFit fit = fit_profile(make.samples, h200(), hopper());
  CHECK(curve(fit, "gemm.bf16").refused.find("twice the noise floor") != std::string::npos);
  CHECK(fitted(fit, "gemm.bf16.k_half") == hopper().calibration.gemm[0].k_half);
}

TEST_CASE("collectives, streams and attention are recovered each by its own curve") {
  Calibration truth = hopper().calibration;
  parameter(truth, "collectives.nvlink.all_gather.bandwidth_fraction") = 0.6;
  parameter(truth, "collectives.nvlink.all_gather.latency_us") = 14;
  parameter(truth, "memory_bound.norm.fraction") = 0.83;
  parameter(truth, "attention.d128.forward_efficiency") = 0.55;
  parameter(truth, "attention.d128.backward_s_half") = 500;
  Maker make(truth, 0.01);
  for (const double ranks : {2.0, 4.0, 8.0}) {
    for (double bytes = 1024; bytes < 2e9; bytes *= 4)
      make.add("all_gather", {{"ranks", ranks}, {"bytes", bytes}});
  }
  for (const double rows : {1024.0, 4096.0, 16384.0, 65536.0}) {
    for (const double cols : {1024.0, 4096.0, 12288.0})
      make.add("rms_norm", {{"rows", rows}, {"cols", cols}});
  }
  for (const double seq : {1024.0, 2048.0, 4096.0, 8192.0, 16384.0}) {
    for (const double heads : {16.0, 64.0}) {
      for (const char* pass : {"forward", "backward"}) {
        make.add("attention",
                 {{"seq", seq}, {"heads", heads}, {"qk_dim", 128.0}, {"pass", std::string(pass)}});
      }
    }
  }
  const ProfileFit fit = fit_profile(make.samples, h200(), hopper());
  CHECK_THAT(fitted(fit, "collectives.nvlink.all_gather.bandwidth_fraction"), WithinRel(0.6, 0.03));
  CHECK_THAT(fitted(fit, "collectives.nvlink.all_gather.latency_us"), WithinRel(14.0, 0.05));
  CHECK_THAT(fitted(fit, "memory_bound.norm.fraction"), WithinRel(0.83, 0.03));
  CHECK_THAT(fitted(fit, "attention.d128.forward_efficiency"), WithinRel(0.55, 0.03));
  CHECK_THAT(fitted(fit, "attention.d128.backward_s_half"), WithinRel(500.0, 0.15));
}

TEST_CASE("contention is read off the GEMMs beside exchanges, and off nothing else") {
  Samples samples;
  samples.device.sms = 132;
  for (const char* with : {"dispatch", "combine", "copy"}) {
    for (const double sms : {8.0, 16.0, 32.0}) {
      Sample s;
      s.cls = "contention";
      s.median_us = 100;
      const double share = with == std::string("copy") ? 3 : 1.2;
      s.keys = {{"with", std::string(with)},
                {"sms", sms},
                {"gemm_slowdown", 1 + share * sms / 132},
                {"other_slowdown", 1.9}};
      samples.samples.push_back(s);
    }
  }
  const ProfileFit fit = fit_profile(samples, h200(), hopper());
  CHECK_THAT(fitted(fit, "contention.compute_per_sm_share"), WithinRel(1.2, 1e-9));
  // waiting for SMs behind GEMMs that run back to back is not what a training step does
  CHECK(fitted(fit, "contention.comm") == hopper().calibration.contention_comm);
}

TEST_CASE("a variable at its bound stays there and the others still find their place") {
  // y = a + b x with b >= 0, data that falls: b = 0, a = the median of what is left
  const std::vector<double> x = {0, 1, 2, 3}, y = {4.0, 3.9, 3.8, 3.7};
  const FitSolution s = fit_robust({{2, 0.1, 10, 5}, {1, 0, 10, 5}}, x.size(),
                                   [&](const std::vector<double>& v, std::vector<double>& r) {
                                     for (std::size_t i = 0; i < x.size(); ++i)
                                       r[i] = std::log((v[0] + v[1] * x[i]) / y[i]);
                                   });
  CHECK(s.values[1] < 1e-6);
  CHECK_THAT(s.values[0], WithinRel(3.85, 0.01));
}

TEST_CASE("a written profile is read back with the values that were fitted") {
  Calibration truth = hopper().calibration;
  parameter(truth, "gemm.bf16.efficiency") = 0.66;
  Maker make(truth, 0.01);
  add_gemms(make);
  for (const double rows : {1024.0, 4096.0, 16384.0, 65536.0}) {  // other sections beside it
    for (const char* cls : {"adam", "rope", "residual"})
      make.add(cls, {{"rows", rows}, {"cols", 4096.0}});
  }
  const ProfileFit fit = fit_profile(make.samples, h200(), hopper());
  const TempDir dir;
  const std::string path =
      dir.file("node.yaml", profile_yaml(fit, make.samples, "hopper", "dgx-h200"));
  const auto back = load_profile(path);
  for (const Diagnostic& d : back.problems()) UNSCOPED_INFO(to_string(d));
  REQUIRE(back.ok());
  CHECK(fit.curves.size() == 4);
  for (const CurveFit& fitted_curve : fit.curves) {
    CHECK_FALSE(fitted_curve.values.empty());
    for (const FittedValue& v : fitted_curve.values) {
      INFO(v.path);
      Calibration c = back.value().calibration;
      CHECK_THAT(parameter(c, v.path), WithinRel(v.value, 1e-3) || WithinAbs(v.value, 1e-6));
      CHECK(back.value().values.at(v.path).kind == "measured");
    }
  }
  CHECK(load_system(path).value().name == "dgx-h200");
}
