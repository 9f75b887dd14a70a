// Are samples read as they were written, and is everything wrong with a file said at once?
#include "moecast/samples.hpp"

#include "catch.hpp"
#include "temp_dir.hpp"

using namespace moecast;
using moecast::test::TempDir;

TEST_CASE("samples come back from a file exactly as they were written") {
  const TempDir dir;
  Samples out;
  out.device.name = "NVIDIA H200";
  out.device.compute_capability = 9.0;
  out.device.sms = 132;
  out.device.more["cluster"] = std::string("lab");
  Sample s;
  s.cls = "gemm";
  s.keys = {{"m", 4096.0}, {"n", 512.0}, {"k", 7168.0}, {"pass", std::string("wgrad")}};
  s.backend = "cublaslt";
  s.median_us = 41.25;
  s.spread_pct = 1.5;
  out.samples = {s};
  const std::string path = (dir.path() / "x.samples.json").string();
  REQUIRE(write_samples(path, out).empty());
  const auto back = read_samples(path);
  REQUIRE(back.ok());
  CHECK(back.value().device.sms == 132);
  CHECK(back.value().device.more == out.device.more);
  REQUIRE(back.value().samples.size() == 1);
  const Sample& t = back.value().samples[0];
  CHECK(t.keys == s.keys);
  CHECK(t.backend == "cublaslt");
  CHECK(t.mode == "sustained");
  CHECK(t.median_us == 41.25);
  CHECK(t.spread_pct == 1.5);
  CHECK(t.run == 1);
}

TEST_CASE("every problem of a samples file is reported at once, with its place") {
  const TempDir dir;
  const std::string path = dir.file("bad.json", R"({"schema":"moecast/samples@1",
"device":{"name":"X","sms":1},
"samples":[
{"class":"gemm","keys":{"m":[1]},"median_us":3},
{"class":"gemm","keys":{},"median_us":-1,"mode":"hot"},
{"class":"gemm","keys":{},"median_us":1,"spred_pct":2},
7]})");
  const auto read = read_samples(path);
  REQUIRE_FALSE(read.ok());
  std::string all;
  for (const auto& p : read.problems()) all += to_string(p) + "\n";
  INFO(all);
  CHECK(read.problems().size() == 6);
  CHECK(all.find("device.compute_capability") != std::string::npos);
  CHECK(all.find("samples[0].keys.m") != std::string::npos);
  CHECK(all.find("'hot'") != std::string::npos);
  CHECK(all.find("samples[1].median_us") != std::string::npos);
  CHECK(all.find("spread_pct") != std::string::npos);
  CHECK(all.find("bad.json:7:1: samples[3]") != std::string::npos);
}
