// Do the samples recorded on H200s give the profile that ships, and how well?
#include <cmath>
#include <map>

#include "calibrate/fit/fit_profile.hpp"
#include "calibrate/fit/least_squares.hpp"
#include "catch.hpp"
#include "core/document.hpp"

using namespace moecast;

namespace {

const Samples& recorded() {
  static const Samples samples =
      read_samples((data_dir() / "hwdb/profiles/h200-sxm.samples.json").string()).take();
  return samples;
}
const ProfileFit& refit() {
  static const ProfileFit fit =
      fit_profile(recorded(), load_system("dgx-h200").value(), load_profile("hopper").value());
  return fit;
}

}  // namespace

TEST_CASE("BF16 GEMM on the H200 is forecast as well as the public tables are") {
  for (const CurveFit& c : refit().curves) {
    if (c.name != "gemm.bf16") continue;
    CHECK(c.points > 300);
    // aiconfigurator's cuBLAS table of the H200, fitted the same way: 3.0 % median and 7.9 % p90
    // from 1024 rows and columns on, 3.7 and 10.4 from 512; here are shapes from 16 on
    CHECK(c.held_out.median < 3.0);
    CHECK(c.held_out.p90 < 8.5);
    CHECK(std::abs(c.held_out.bias) < 1);
  }
}

TEST_CASE("the shipped H200 profile is what its samples say") {
  const Profile shipped = load_profile("h200-sxm").value();
  std::size_t parameters = 0;
  for (const CurveFit& c : refit().curves) {
    for (const FittedValue& v : c.values) {
      const ParameterValue& there = shipped.values.at(v.path);
      INFO(v.path << ": refit with moecast calibrate --fit");
      CHECK(there.kind == "measured");
      // an earlier curve's value of a parameter that a later one fits again is not kept
      const double last = refit().profile.values.at(v.path).value;
      CHECK_THAT(there.value, WithinRel(last, 2e-3) || WithinAbs(last, 1e-4));
      ++parameters;
    }
  }
  CHECK(parameters > 60);
}

// Measured with `moecast calibrate --random`: log-uniform shapes, tiny and odd ones among them.
TEST_CASE("random shapes, which no fit has seen, are forecast as well as the grid's") {
  const Samples unseen =
      read_samples(std::string(MOECAST_TEST_DIR) + "/unit/calibrate/data/h200-random.samples.json")
          .take();
  const System system = load_system("dgx-h200").value();
  const Profile shipped = load_profile("h200-sxm").value();
  std::map<std::string, std::vector<double>> errors;
  for (const FitPoint& p : fit_points(unseen, system)) {
    const double us = in_us(p.call.time(shipped.calibration, system));
    errors[p.sample->cls].push_back(std::abs(us / p.measured_us - 1));
  }
  const std::pair<const char*, double> bounds[] = {{"gemm", 0.06},
                                                   {"grouped_gemm", 0.09},
                                                   {"attention", 0.04},
                                                   {"h2d", 0.10},
                                                   {"d2h", 0.15},
                                                   {"rms_norm", 0.08},
                                                   {"swiglu", 0.06},
                                                   {"swiglu_backward", 0.07},
                                                   {"adam", 0.03},
                                                   {"copy", 0.03},
                                                   {"residual", 0.03},
                                                   {"cast", 0.03},
                                                   {"rope", 0.08},
                                                   {"cross_entropy", 0.05},
                                                   {"rms_norm_backward", 0.08},
                                                   {"dispatch", 0.08},
                                                   {"combine", 0.15}};
  for (const auto& [cls, median] : bounds) {
    INFO(cls);
    CHECK(errors[cls].size() >= 10);
    CHECK(quantile(errors[cls], 0.5) < median);
  }
}

TEST_CASE("what was measured on the H200 is near the data sheet and never above it") {
  const System system = load_system("dgx-h200").value();
  for (const FitPoint& p : fit_points(recorded(), system)) {
    const KernelPrice price = p.call.price(refit().profile, system);
    const double limit_us = price.fraction_of_limit * in_us(price.time);
    INFO(p.sample->cls << " " << p.sample->backend << " " << p.measured_us << " us");
    CHECK(p.measured_us > 0.9 * limit_us);  // small operands stay in L2, links beat their rating
  }
}
