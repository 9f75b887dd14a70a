// What is kept of repeated timings, and what a run that is interrupted or repeated keeps.
#include "calibrate/timing.hpp"

#include <filesystem>

#include "calibrate/recorder.hpp"
#include "catch.hpp"
#include "temp_dir.hpp"

using namespace moecast;

namespace {

const Kernel kCopy{"copy", {{"rows", 64.0}, {"cols", 128.0}}, "moecast"};

SampleDevice device(const std::string& name) {
  SampleDevice d;
  d.name = name;
  d.compute_capability = 9.0;
  d.sms = 132;
  return d;
}

}  // namespace

TEST_CASE("a timing is summarised by its median and the width of its middle 80 %") {
  const Timing t = summarize({30, 10, 20, 50, 40, 60, 70, 80, 90, 100, 110});
  CHECK(t.n == 11);
  CHECK_THAT(t.median_us, WithinRel(60.0, 1e-12));
  CHECK_THAT(t.min_us, WithinRel(10.0, 1e-12));
  CHECK_THAT(t.max_us, WithinRel(110.0, 1e-12));
  CHECK_THAT(t.spread_pct, WithinRel(100.0 * (100 - 20) / 60, 1e-12));  // ranks 2 and 10 of 11
  CHECK(summarize({}).n == 0);
}

TEST_CASE("noisy and throttled timings are refused, short ones by absolute jitter") {
  Timing t = summarize({100, 100, 104, 104});
  CHECK(is_accepted(t));
  t.is_throttled = true;
  CHECK_FALSE(is_accepted(t));
  CHECK_FALSE(is_usable(t));
  CHECK_FALSE(is_accepted(summarize({100, 100, 110, 110})));
  CHECK(is_usable(summarize({100, 100, 110, 110})));
  CHECK_FALSE(is_usable(summarize({100, 100, 180, 180})));
  CHECK(is_accepted(summarize({2.0, 2.0, 2.4, 2.4})));  // 20 %, but less than half a microsecond
}

TEST_CASE("a rerun finds what an interrupted run recorded, on the same device only") {
  const test::TempDir dir;
  const std::string path = (dir.path() / "x.samples.json").string();
  const Timing t = summarize({10.00049, 10.1, 10.2});
  {
    Recorder first(path, 1);
    REQUIRE(first.resume(device("A")).empty());
    first.add(kCopy, "sustained", 0, t, 1.23e-3);
    first.add(kCopy, "sustained", 0, t, 1.23e-3);  // the same kernel again is not a second sample
    REQUIRE(first.save().empty());
  }
  Recorder again(path, 1), repeat(path, 2), other(path, 1);
  REQUIRE(again.resume(device("A")).empty());
  CHECK(again.samples().samples.size() == 1);
  CHECK(again.has(kCopy, "sustained", 0));
  CHECK_FALSE(again.has(kCopy, "burst", 0));
  CHECK_FALSE(again.has(kCopy, "sustained", 1));
  REQUIRE(repeat.resume(device("A")).empty());
  CHECK_FALSE(repeat.has(kCopy, "sustained", 0));
  const Diagnostics problems = other.resume(device("B"));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].key == "device.name");
}

TEST_CASE("what was measured about a kernel does not make it another kernel") {
  Recorder recorder("", 1);
  REQUIRE(recorder.resume(device("A")).empty());
  Kernel pair{"contention", {{"sms", 8.0}, {"with", "dispatch"}}, "moecast"};
  Kernel measured = pair;
  measured.keys["gemm_alone_us"] = 12.0;
  measured.keys["gemm_slowdown"] = 1.25;
  recorder.add(measured, "sustained", 0, summarize({15}), 0);
  CHECK(recorder.has(pair, "sustained", 0));
  pair.keys["sms"] = 16.0;
  CHECK_FALSE(recorder.has(pair, "sustained", 0));
}

TEST_CASE("timings are written with four digits") {
  CHECK_THAT(rounded(123456.0), WithinRel(123456.0, 1e-12));
  CHECK_THAT(rounded(12.34567), WithinRel(12.35, 1e-12));
  CHECK_THAT(rounded(0.001234567), WithinRel(0.001235, 1e-12));
  CHECK(rounded(0) == 0);
}
